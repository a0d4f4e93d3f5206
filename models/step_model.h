#pragma once

#include <span>
#include <vector>

#include "heed/models/batch.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"

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

}  // namespace heed
