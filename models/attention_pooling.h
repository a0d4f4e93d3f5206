#pragma once

#include "heed/models/layers.h"

namespace heed {

/// One vector for a sequence, as the released code of Fastformer (arXiv 2108.09084) has it:
///
///   e_i = tanh(x_i W1 + b1) w2 + c2,    out = sum_i softmax(e)_i x_i
///
/// Parts "hidden" (W1, b1) and "score" (w2, c2), from N(0, 0.02^2). A sequence without a real token gives 0.
class AttentionPooling : public Module {
 public:
  AttentionPooling(std::int64_t width, Initialiser& initialiser);
  /// x [B, N, d] and its mask (i32 [B, N], undefined = all real) -> [B, d].
  Tensor operator()(const Tensor& x, const Tensor& mask) const;

 private:
  Linear hidden_, score_;
};

}  // namespace heed
