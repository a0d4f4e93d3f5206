#pragma once

#include "heed/models/module.h"

namespace heed {

/// A causal convolution of each channel by itself, y_t = sum_s w_{c-1-s} x_{t-s} + b over s = 0 ...
/// c - 1, as stands before the recurrences of newer mechanisms: "weight" [c, C], U(-1, 1) /
/// sqrt(c), and "bias" [C], 0.
class ShortConvolution : public Module {
 public:
  ShortConvolution(std::int64_t taps, std::int64_t channels, bool with_bias, Initialiser& initialiser);
  /// x [B, N, C] -> [B, N, C]. `before` is x at the c - 1 positions before [B, c - 1, C]
  /// (undefined: 0), and becomes that of the last ones; null: a whole sequence.
  Tensor operator()(const Tensor& x, Tensor* before) const;

  Tensor weight, bias;
};

}  // namespace heed
