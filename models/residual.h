#pragma once

#include <utility>

#include "heed/autograd/ops.h"
#include "heed/models/layers.h"
#include "heed/models/transformer_config.h"

namespace heed {

/// What runs through a stack of sub-layers: x + dropout(added). Where they are pre-norm, the next one's normalisation
/// adds, in the pass that it takes anyway.
class Stream {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a stream to which nothing is added
  Stream(Tensor x) : x_(std::move(x)) {}
  Stream(Tensor x, Tensor added, double p, const RandomKey& key)
      : x_(std::move(x)), added_(std::move(added)), p_(p), key_(key) {}

  /// The sum, and that normalised.
  NormedSum normed_by(const Norm& norm) const {
    return added_.defined() ? norm(added_, x_, p_, key_) : NormedSum{x_, norm(x_)};
  }
  Tensor sum() const { return added_.defined() ? dropout_add(added_, x_, p_, key_) : x_; }

 private:
  Tensor x_, added_;  // added_: undefined: nothing
  double p_ = 0;
  RandomKey key_;
};

/// What surrounds every sub-layer of a Transformer: dropout, the residual connection and a layer
/// normalisation (or the one that norm_kind names), whose parameters "weight" and "bias" this is. Post-norm:
/// LN(x + dropout(f(x))) (Vaswani et al. 2017, section 3.1); pre-norm: x + dropout(f(LN(x))) (arXiv 2002.04745).
class Residual : public Norm {
 public:
  explicit Residual(const TransformerConfig& config)
      : Norm(norm_kind_of(config.norm_kind), config.width, config.epsilon),
        pre_(config.norm == "pre"),
        dropout_(config.dropout) {}

  template <class Sublayer>
  Stream around(const Stream& stream, Context& context, Sublayer&& sublayer) const {
    const NormedSum input = pre_ ? stream.normed_by(*this) : NormedSum{stream.sum(), {}};
    const Tensor added = sublayer(pre_ ? input.normalised : input.sum);
    const double p = context.training ? dropout_ : 0;
    const RandomKey key = p > 0 ? context.random.next() : RandomKey();
    const Stream after(input.sum, added, p, key);
    return pre_ ? after : Stream(after.normed_by(*this).normalised);
  }

 private:
  bool pre_;
  double dropout_;
};

}  // namespace heed
