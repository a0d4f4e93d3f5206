#pragma once

#include "heed/models/module.h"

namespace heed {

/// A causal depthwise convolution, used before the recurrences of newer mechanisms: y_t = sum_s
/// w_{c-1-s} x_{t-s} + b over s = 0 ... c - 1. "weight" [c, C] starts from U(-1, 1) / sqrt(c),
/// "bias" [C] from 0.
class ShortConvolution : public Module {
 public:
  ShortConvolution(std::int64_t taps, std::int64_t channels, bool with_bias, Initialiser& initialiser);
  /// x [B, N, C] -> [B, N, C]. `before` is x at the c - 1 positions before [B, c - 1, C]
  /// (undefined: 0), and becomes that of the last ones; null: a whole sequence.
  Tensor operator()(const Tensor& x, Tensor* before) const;

  Tensor weight, bias;
};

}  // namespace heed
