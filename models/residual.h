#pragma once

#include "heed/models/layers.h"
#include "heed/models/transformer_config.h"

namespace heed {

/// What surrounds every sub-layer of a Transformer: dropout, the residual connection and a layer
/// normalisation (or the one that norm_kind names), whose parameters "weight" and "bias" this is. Post-norm: LN(x + dropout(f(x))) (Vaswani et
/// al. 2017, section 3.1); pre-norm: x + dropout(f(LN(x))) (arXiv 2002.04745).
class Residual : public Norm {
 public:
  explicit Residual(const TransformerConfig& config)
      : Norm(norm_kind_of(config.norm_kind), config.width, config.epsilon),
        pre_(config.norm == "pre"),
        dropout_(config.dropout) {}

  template <class Sublayer>
  Tensor around(const Tensor& x, Context& context, Sublayer&& sublayer) const {
    const Norm& norm = *this;
    if (pre_) return add_residual(sublayer(norm(x)), x, dropout_, context);
    return norm(add_residual(sublayer(x), x, dropout_, context));
  }

 private:
  bool pre_;
  double dropout_;
};

}  // namespace heed
