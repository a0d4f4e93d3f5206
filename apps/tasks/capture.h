#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/tensor.h"
#include "heed/data/safetensors.h"
#include "heed/data/tokenizer.h"
#include "heed/models/module.h"

namespace heed {

/// What layers show in a pass that is given a context for inference; without gradients.
Capture captured(const std::function<void(Context&)>& pass);

/// A line of input and the answer to it.
struct Answered {
  std::string line, text;
  double probability = 0;  ///< 0: none is known
};

/// What a model shows of its inside, example by example: attention weights, cluster assignments, orders. The
/// tensors are named "<example>.<layer>.<name>", such as "lines.0.encoder.layers.1.attention.weights"; what a
/// layer shows twice under one name has ".1", ".2" ... behind the second, third ...
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

  const TensorFile& content() const { return content_; }
  /// By example.
  const std::map<std::string, Answered>& answers() const { return answers_; }

 private:
  void add(const std::string& name, const Tensor& value);
  std::string page() const;

  TensorFile content_;
  std::map<std::string, Answered> answers_;
};

/// Adds what one pass over `rows` left, with their tokens. Of two rows each is an example of its own:
/// "<example>-first" and "<example>-second".
void add_pass(CaptureFile& file, const std::string& example, const Capture& capture,
              const std::vector<Tokens>& rows, const Tokenizer& tokenizer);

// Drawings of what models show of their inside (apps/tasks/capture.h), as parts of a page of training/report.h.

/// How much of a capture is drawn. What is left out is said beside the drawing.
struct DrawingOptions {
  static constexpr std::int64_t all = 1 << 30;
  std::int64_t examples = all, tokens = all, layers = all, heads = all;  ///< the most of each
  std::int64_t cells =
      all;  ///< of all maps of an example together: where they are many, fewer tokens are drawn
};

/// For each example its line and answer; a map of every head, of the mean over the heads of a layer and of
/// the mean over the layers, one of them large with the tokens on its axes, whose cells say their weight when
/// pointed at; the same as a table of what each token looks at most; and its text as often as there are
/// clusters, buckets and weights of tokens to colour it by. Words that the vocabulary lacks stand as ⟨word⟩.
/// "" where there is nothing to draw.
std::string capture_html(const CaptureFile& capture, const DrawingOptions& options = {});

/// Histograms of the attention weights of each layer before and after training, as in figure 1 of the
/// Synthesizer paper (arXiv 2005.00743, where they are of the first and the last step). Both captures are of
/// the same model and texts. "" where there are no weights.
std::string weight_histograms_html(const TensorFile& first, const TensorFile& last, std::size_t most_layers);

/// Bytes in base 64 (RFC 4648), as scripts read them.
std::string base64(std::string_view bytes);

}  // namespace heed
