#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "heed/models/loss.h"

namespace heed {

/// A model that search and sampling advance one token at a time; it has one row per hypothesis.
class StepModel {
 public:
  virtual ~StepModel() = default;
  /// Reads one more token per row, i32 [R], and returns the logits [R, V] of the next one.
  virtual Tensor step(const Tensor& tokens) = 0;
  /// Continues with the given rows (a row may occur several times or not at all).
  virtual void reorder(std::span<const std::int32_t> rows) = 0;
  virtual Device device() const = 0;
};

/// Decodes with an encoder-decoder that has encoded its sources; one row per source.
class EncoderDecoderSteps : public StepModel {
 public:
  EncoderDecoderSteps(EncoderDecoder& model, const PaddedTokens& sources);
  Tensor step(const Tensor& tokens) override { return model_.step(tokens, state_, context_); }
  void reorder(std::span<const std::int32_t> rows) override;
  Device device() const override { return model_.device(); }

 private:
  EncoderDecoder& model_;
  Context context_ = Context::inference();
  DecoderState state_;
  std::size_t sharing_ = 1;  // number of adjacent rows that share one source
};

/// Continues a prompt with a language model, in `rows` equal rows. The rows have read all of the
/// prompt but the last token; pass that token to step() first. The model sees at most `context`
/// tokens at a time. After that many it starts over from the last half of them, so a text can
/// become longer than the context.
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
  std::vector<Tokens> texts_;  // the tokens of each row so far
};

/// Called during writing, as soon as more tokens of a text are certain. `tokens` holds all certain
/// tokens so far; the finished text begins with them. An exception ends the writing.
using TokenWatch = std::function<void(std::size_t text, std::span<const std::int32_t> tokens)>;
using TextIsOver = std::function<bool(std::span<const std::int32_t> tokens)>;

/// Returns logits [R, V] with one token made impossible. A negative `token` changes nothing.
Tensor exclude_token(const Tensor& logits, std::int32_t token);

/// Tells the model which of its `before` rows continue, unless all of them do in place or none
/// does.
void keep_rows(StepModel& model, std::span<const std::int32_t> rows, std::size_t before);

/// The rules for drawing the next token from a model's logits. The options apply in this order;
/// excluded tokens have probability 0, and the remaining probabilities are renormalised.
struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: greedy, always the most probable token
  std::int64_t top_k = 0;  ///< only the k most probable tokens; 0: all
  /// Only the smallest set of most probable tokens whose probabilities sum to at least p (the
  /// nucleus of Holtzman et al., arXiv 1904.09751), and at least one token. 1: all.
  double top_p = 1;
  /// Only tokens with at least this share of the largest probability (Nguyen et al. 2024, arXiv 2407.01082,
  /// section 3). 0: all.
  double min_p = 0;
  /// Before all others: divides positive logits of tokens that the text already has, and multiplies negative
  /// ones (Keskar et al. 2019, arXiv 1909.05858, section 4.1, as published models do). 1: does nothing.
  double repetition_penalty = 1;
};
/// Throws an Error that names the option and its value unless temperature >= 0, top_k >= 0, 0 <
/// top_p <= 1, 0 <= min_p <= 1 and repetition_penalty > 0.
void check_sampling(const SamplingOptions& options);

/// Returns the probability of each token. Among equally probable tokens, the lower id ranks first.
/// Throws when a logit is NaN or none is finite.
std::vector<double> sampling_probabilities(std::span<const double> logits, const SamplingOptions& options);
/// Returns the token whose interval contains `uniform`, in [0, 1), when the probabilities are laid
/// end to end by id.
std::int32_t sample_token(std::span<const double> logits, const SamplingOptions& options, double uniform);

/// Samples one text per row of the model. Text i continues first[i] with at most max_lengths[i]
/// tokens and stops before any of `ends`. It depends only on the model's row i, the options and
/// streams[i] (without streams: i), not on the other rows. `log_probabilities`, unless null,
/// receives the natural logarithm of each text's probability under the model, before the options,
/// over its tokens and the end token if one was drawn. `before` are tokens that all texts have before their
/// first, for the repetition penalty; a text whose tokens `is_over` accepts is not continued.
std::vector<Tokens> sample(StepModel& model, std::span<const std::int32_t> first,
                           std::span<const std::int64_t> max_lengths, const SamplingOptions& options,
                           std::span<const std::int32_t> ends, std::uint64_t seed,
                           std::span<const std::uint32_t> streams = {},
                           std::vector<double>* log_probabilities = nullptr, const TokenWatch& watch = {},
                           std::span<const std::int32_t> before = {}, const TextIsOver& is_over = {});

struct GenerationOptions {
  SamplingOptions sampling = {};
  std::int64_t tokens = 256;  ///< at most this many new tokens
  Tokens ends = {};           ///< the tokens that end a text; not part of the text
  TextIsOver is_over = {};    ///< whether new tokens end their text; they are part of it
  /// The most tokens that the model sees at once (see LanguageModelSteps).
  std::int64_t context = 256;
  std::uint64_t seed = 1;
};

/// Continues a prompt and returns the new tokens of each of `samples` texts. Text i depends only on
/// the prompt, the options and i, not on the number of samples. Throws an Error when the prompt is
/// empty or longer than the context, or an option is out of range: 1 to 65,536 samples, at most
/// 2^31 tokens. `log_probabilities`: see sample().
std::vector<Tokens> generate(LanguageModel& model, std::span<const std::int32_t> prompt, std::int64_t samples,
                             const GenerationOptions& options,
                             std::vector<double>* log_probabilities = nullptr, const TokenWatch& watch = {});

}  // namespace heed
