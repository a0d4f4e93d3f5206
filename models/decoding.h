#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/loss.h"

namespace heed {

/// A model that is read one token at a time, as searching and sampling need it: a row for each hypothesis.
class StepModel {
 public:
  virtual ~StepModel() = default;
  /// Logits [R, V] of what follows after one more token for each row, i32 [R].
  virtual Tensor step(const Tensor& tokens) = 0;
  /// Goes on with the given rows (a row may occur more than once, or not at all).
  virtual void reorder(std::span<const std::int32_t> rows) = 0;
  virtual Device device() const = 0;
};

/// An encoder-decoder that has read its sources and begins to write: one row for each of them.
class EncoderDecoderSteps : public StepModel {
 public:
  EncoderDecoderSteps(EncoderDecoder& model, const PaddedTokens& sources);
  Tensor step(const Tensor& tokens) override;
  void reorder(std::span<const std::int32_t> rows) override;
  Device device() const override { return model_.device(); }

 private:
  EncoderDecoder& model_;
  Context context_ = Context::inference();
  DecoderState state_;
  std::size_t sharing_ = 1;  // rows that stand side by side and have one source
};

/// A language model that goes on with a prompt: `rows` equal rows, which have read all of it but the last
/// token, the first that step() is to be given. It sees at most `context` tokens at a time: when so many are
/// read, reading starts over with the last half of them, so that a text may become longer than that.
class LanguageModelSteps : public StepModel {
 public:
  /// Throws an Error when the prompt is empty or longer than the context.
  LanguageModelSteps(LanguageModel& model, std::span<const std::int32_t> prompt, std::int64_t rows,
                     std::int64_t context);
  Tensor step(const Tensor& tokens) override;
  void reorder(std::span<const std::int32_t> rows) override;
  Device device() const override { return model_.device(); }

 private:
  Tensor read(std::span<const Tokens> texts, std::size_t begin);

  LanguageModel& model_;
  std::int64_t length_;  // of the context
  Context context_ = Context::inference();
  DecoderState state_;
  std::vector<Tokens> texts_;  // of the rows, as far as they were given
};

/// Logits [R, V] with which one token is never chosen. A negative one: as they are.
Tensor without_token(const Tensor& logits, std::int32_t token);

/// Tells the model which of its `before` rows go on, unless all do, in place, or none does.
void keep_rows(StepModel& model, std::span<const std::int32_t> rows, std::size_t before);

/// How the next token is drawn from a model's logits. Applied in this order; tokens that are left out have
/// probability 0, and the others' sum to 1 again.
struct SamplingOptions {
  double temperature = 1;  ///< the logits are divided by it; 0: greedy, always the most probable token
  std::int64_t top_k = 0;  ///< only the k most probable tokens; 0: all
  /// Only the fewest most probable tokens whose probabilities together reach p (the nucleus of Holtzman et
  /// al., arXiv 1904.09751); at least one. 1: all.
  double top_p = 1;
};
/// Throws an Error that names the option and its value unless temperature >= 0, top_k >= 0, 0 < top_p <= 1.
void check_sampling(const SamplingOptions& options);

/// The probability of each token. Of tokens equally probable the one with the lower id ranks first. Throws
/// when a logit is not a number or none is finite.
std::vector<double> sampling_probabilities(std::span<const double> logits, const SamplingOptions& options);
/// The token at the place `uniform`, in [0, 1), of these probabilities laid end to end by id.
std::int32_t sample_token(std::span<const double> logits, const SamplingOptions& options, double uniform);

/// Draws texts, one for each row that the model starts with: after first[i], at most max_lengths[i] tokens,
/// ending before `end` where there is one. Text i depends on the model's row i, the options and streams[i]
/// alone (without streams: i), not on the other rows. `log_probabilities`, where asked for, gets the natural
/// logarithm of each text's probability under the model, before the options: over its tokens, and the end
/// where it was drawn.
std::vector<Tokens> sample(StepModel& model, std::span<const std::int32_t> first,
                           std::span<const std::int64_t> max_lengths, const SamplingOptions& options,
                           std::optional<std::int32_t> end, std::uint64_t seed,
                           std::span<const std::uint32_t> streams = {},
                           std::vector<double>* log_probabilities = nullptr);

struct GenerationOptions {
  SamplingOptions sampling;
  std::int64_t tokens = 256;             ///< the most new tokens
  std::optional<std::int32_t> end = {};  ///< the token that ends a text, itself no part of it
  /// Tokens that the model sees at most (see LanguageModelSteps).
  std::int64_t context = 256;
  std::uint64_t seed = 1;
};

/// Continues a prompt: the new tokens of each of `samples` texts. Text i depends on the prompt, the options
/// and i alone, not on how many are asked for. Throws an Error when the prompt is empty or longer than the
/// context, and when an option is out of range: 1 to 65,536 samples, at most 2^31 tokens.
/// `log_probabilities`: see sample().
std::vector<Tokens> generate(LanguageModel& model, std::span<const std::int32_t> prompt, std::int64_t samples,
                             const GenerationOptions& options,
                             std::vector<double>* log_probabilities = nullptr);

}  // namespace heed
