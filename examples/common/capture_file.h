#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "heed/data/safetensors.h"
#include "heed/models/context.h"

namespace heed::programs {

/// --capture FILE: where to write what the model shows of its inside. `path` is empty when it is not given.
void add_capture_flag(CLI::App& command, std::string& path);

/// What a model shows of its inside, example by example, as a safetensors file: the tensors
/// "<example>.<layer>.<name>", such as "lines.0.encoder.layers.1.attention.weights". What a layer shows twice
/// under one name has ".1", ".2" ... behind the second, third ...
class CaptureFile {
 public:
  explicit CaptureFile(std::string path) : path_(std::move(path)) {}

  /// What one pass over `example` left.
  void add(const std::string& example, const Capture& capture);
  /// What belongs to an example beside that, such as its token ids.
  void add(const std::string& name, const Tensor& value);
  /// Writes the file, whole or not at all.
  void save() const;

 private:
  std::string path_;
  TensorFile content_;
};

}  // namespace heed::programs
