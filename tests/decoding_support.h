#pragma once

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/language_model.h"
#include "model_support.h"

// For tests of models that read a text at once and token by token.

namespace heed::test {

inline const Tensor& tokens() {
  static const Tensor ids = Tensor::from(std::vector<std::int32_t>{1, 4, 7, 2, 9, 3, 8, 8, 5, 6}, {2, 5});
  return ids;
}

/// The logits of all tokens() in one pass, and step by step, agree.
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

}  // namespace heed::test
