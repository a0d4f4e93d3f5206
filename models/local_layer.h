#pragma once

#include "heed/models/residual.h"

namespace heed {

/// A convolution over neighbouring tokens within a residual connection, so that a model need not learn from little
/// data which positions stand beside each other (the filters of Kim 2014, arXiv 1408.5882, eq. 2):
///
///   x_i + act(W [x_{i-l}; ...; x_i; ...; x_{i+r}] + b),    l + 1 + r = local_width, l = floor((local_width - 1) / 2)
///
/// with zeros for padding and beyond both ends. Parts "map" (W [d, local_width d], b) and "norm".
class LocalLayer : public Module {
 public:
  LocalLayer(const TransformerConfig& config, Initialiser& initialiser);
  /// x [B, N, d], mask i32 [B, N] (undefined: all real) -> [B, N, d].
  Tensor operator()(const Tensor& x, const Tensor& mask, Context& context) const;

 private:
  std::int64_t neighbours_;
  Activation activation_;
  Linear map_;
  Residual norm_;
};

}  // namespace heed
