#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heed/data/safetensors.h"
#include "heed/models/context.h"

namespace heed {

/// What layers show in a pass that is given a context for inference; without gradients.
Capture captured(const std::function<void(Context&)>& pass);

/// What a model shows of its inside, example by example: attention weights, cluster assignments, orders. The tensors
/// are named "<example>.<layer>.<name>", such as "lines.0.encoder.layers.1.attention.weights"; what a layer shows
/// twice under one name has ".1", ".2" ... behind the second, third ...
class CaptureFile {
 public:
  /// What one pass over `example` left.
  void add(const std::string& example, const Capture& capture);
  /// Token ids that the model read, "<example>.<name>", and what they say.
  void add_tokens(const std::string& example, const std::string& name, const Tensor& ids,
                  const std::vector<std::string>& texts);
  /// Writes the file, whole or not at all: a page with a map of every head for a name that ends in .html, else
  /// safetensors, whose metadata hold the tokens as JSON lists of strings. A file that exists is refused unless
  /// `overwrite`.
  void save(const std::filesystem::path& path, bool overwrite) const;

  const TensorFile& content() const { return content_; }

 private:
  void add(const std::string& name, const Tensor& value);
  std::string page() const;

  TensorFile content_;
};

}  // namespace heed
