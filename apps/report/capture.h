#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "heed/core/tensor.h"
#include "heed/models/module.h"
#include "heed/text/safetensors.h"

namespace heed {

/// A line of input and the answer to it.
struct Answered {
  std::string line, text;
  double probability = 0;  ///< 0: none is known
};

/// The captured tensors of one example.
struct CapturedExample {
  struct TokenList {
    std::string name;                ///< "tokens"; of two lists "source" and "target"
    Tensor ids;                      ///< token ids
    std::vector<std::string> texts;  ///< the tokens as text
  };
  std::string name;  ///< "lines.0"
  std::vector<TokenList> tokens = {};
  std::vector<Capture::Entry> shown = {};  ///< in the order of computation
};

/// Captured internals of a model, by example: attention weights, cluster assignments, orders.
class CaptureFile {
 public:
  /// Adds the capture of one pass over `example`.
  void add(const std::string& example, const Capture& capture);
  /// Adds the token ids that the model read, "<example>.<name>", and their texts.
  void add_tokens(const std::string& example, const std::string& name, const Tensor& ids,
                  const std::vector<std::string>& texts);
  /// Adds the input line and the model's answer, for the page.
  void add_answer(const std::string& example, const Answered& answer) { answers_[example] = answer; }
  /// Writes the file atomically. A name ending in .html gives a page with a map of every head; any
  /// other name gives safetensors, with the tokens as JSON lists in the metadata. An existing file
  /// is refused unless `overwrite`.
  void save(const std::filesystem::path& path, bool overwrite) const;

  /// The content as a safetensors file. Tensors are named "<example>.<layer>.<name>", such as
  /// "lines.0.encoder.layers.1.attention.weights"; repeated names within a layer get the suffix
  /// ".1", ".2", ...
  TensorFile content() const;
  /// The examples, sorted by number.
  std::vector<CapturedExample> examples() const;
  /// The answer to an example; null if there is none. For "lines.0-second" (one text of a pair) it
  /// is the answer to "lines.0".
  const Answered* answer_to(const std::string& example) const;

 private:
  CapturedExample& example(const std::string& name);

  std::map<std::tuple<std::string, std::size_t, std::string>, CapturedExample> examples_;
  std::map<std::string, Answered> answers_;  // by example
};

/// Limits on the part of a capture that is drawn. The page states what is left out.
struct DrawingOptions {
  static constexpr std::int64_t all = 1 << 30;
  std::int64_t examples = all, tokens = all, layers = all, heads = all;  ///< maxima
  /// The most cells in all maps of an example together; if there are many maps, fewer tokens are
  /// drawn.
  std::int64_t cells = all;
};

}  // namespace heed
