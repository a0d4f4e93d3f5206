#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "heed/core/tensor.h"
#include "heed/data/safetensors.h"
#include "heed/models/module.h"

namespace heed {

/// A line of input and the answer to it.
struct Answered {
  std::string line, text;
  double probability = 0;  ///< 0: none is known
};

/// What a model shows of one example.
struct CapturedExample {
  struct TokenList {
    std::string name;                ///< "tokens"; of two lists "source" and "target"
    Tensor ids;                      ///< which the model read
    std::vector<std::string> texts;  ///< what they say
  };
  std::string name;  ///< "lines.0"
  std::vector<TokenList> tokens = {};
  std::vector<Capture::Entry> shown = {};  ///< in the order of computation
};

/// What a model shows of its inside, example by example: attention weights, cluster assignments, orders.
class CaptureFile {
 public:
  /// What one pass over `example` left.
  void add(const std::string& example, const Capture& capture);
  /// Token ids that the model read, "<example>.<name>", and what they say.
  void add_tokens(const std::string& example, const std::string& name, const Tensor& ids,
                  const std::vector<std::string>& texts);
  /// What the example was and what the model made of it, for readers of the page.
  void add_answer(const std::string& example, const Answered& answer) { answers_[example] = answer; }
  /// Writes the file, whole or not at all: a page with a map of every head for a name that ends in .html,
  /// else safetensors, whose metadata hold the tokens as JSON lists of strings. A file that exists is refused
  /// unless `overwrite`.
  void save(const std::filesystem::path& path, bool overwrite) const;

  /// As safetensors have it: tensors are named "<example>.<layer>.<name>", such as
  /// "lines.0.encoder.layers.1.attention.weights"; what a layer shows twice under one name has ".1", ".2" ...
  /// behind the second, third ...
  TensorFile content() const;
  /// By their numbers.
  std::vector<CapturedExample> examples() const;
  /// Of "lines.0", too, for "lines.0-second": of two texts that are read one by one. Null where there is
  /// none.
  const Answered* answer_to(const std::string& example) const;

 private:
  CapturedExample& example(const std::string& name);

  std::map<std::tuple<std::string, std::size_t, std::string>, CapturedExample> examples_;
  std::map<std::string, Answered> answers_;  // by example
};

/// How much of a capture is drawn. What is left out is said beside the drawing.
struct DrawingOptions {
  static constexpr std::int64_t all = 1 << 30;
  std::int64_t examples = all, tokens = all, layers = all, heads = all;  ///< the most of each
  /// Of all maps of an example together: where they are many, fewer tokens are drawn.
  std::int64_t cells = all;
};

}  // namespace heed
