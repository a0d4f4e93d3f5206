#pragma once

#include "heed/models/encoder_decoder.h"
#include "heed/models/language_model.h"
#include "model_support.h"

// For tests of models that read a text both at once and token by token.

namespace heed::test {

inline const Tensor& tokens() {
  static const Tensor ids = Tensor::from(Ints{1, 4, 7, 2, 9, 3, 8, 8, 5, 6}, {2, 5});
  return ids;
}

/// Checks that the logits of all tokens() agree in one pass and step by step.
inline void check_steps(LanguageModel& model) {
  model.to(DType::f64, {});
  const NoGrad no_grad;
  Context context = Context::inference();
  const Tensor whole = model.logits(model.hidden({tokens(), {}}, context));
  DecoderState state = model.start();
  for (std::int64_t t = 0; t < tokens().size(1); ++t) {
    const Tensor one = model.step(contiguous(select(tokens(), 1, t)), state, context);
    CHECK(worst_difference(one, contiguous(select(whole, 1, t))) < 1e-12);
  }
}

/// Checks that a translator's steps agree with one pass: two sources, and two hypotheses that share
/// a source.
inline void check_translator_steps(const TransformerConfig& config) {
  EncoderDecoder model(config);
  model.to(DType::f64, {});
  const NoGrad no_grad;
  Context context = Context::inference();
  for (const bool sharing : {false, true}) {
    CAPTURE(sharing);
    const std::vector<Tokens> texts{{3, 4, 5, 6}, sharing ? Tokens{3, 4, 5, 6} : Tokens{7, 8}};
    const PaddedTokens sources = pad_tokens(texts);
    const Tensor memory = model.encode(sources, context);
    const Tensor hidden = model.decode({tokens(), {}}, memory, sources.mask, context);
    const Tensor whole = model.log_probabilities(hidden, memory, sources, context);
    DecoderState state = sharing ? model.start(slice(memory, 0, 0, 1), pad_tokens(std::span(texts).first(1)))
                                 : model.start(memory, sources);
    for (std::int64_t t = 0; t < tokens().size(1); ++t) {
      const Tensor one = log_softmax(model.step(contiguous(select(tokens(), 1, t)), state, context));
      CHECK(worst_difference(one, contiguous(select(whole, 1, t))) < 1e-12);
    }
  }
}

}  // namespace heed::test
