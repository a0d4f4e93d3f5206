#include "heed/models/attention_pooling.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

AttentionPooling::AttentionPooling(std::int64_t width, Initialiser& initialiser)
    : hidden_(width, width, true, initialiser), score_(width, 1, true, initialiser) {
  for (Linear* part : {&hidden_, &score_}) {
    part->weight = parameter(initialiser.normal(part->weight.shape(), 0.02));
  }
  add_module("hidden", hidden_);
  add_module("score", score_);
}

Tensor AttentionPooling::operator()(const Tensor& x, const Tensor& mask) const {
  const Tensor logits = transpose(score_(tanh(hidden_(x))), 1, 2);  // [B, 1, N]
  const Tensor weights = mask.defined() ? masked_softmax(logits, unsqueeze(mask, 1)) : softmax(logits, -1);
  return squeeze(matmul(weights, x), 1);
}

}  // namespace heed
