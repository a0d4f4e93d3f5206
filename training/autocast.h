#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "heed/training/optimizer.h"
#include "heed/training/precision.h"

namespace heed {

/// Mixed precision in a training loop of your own: products, attention and all other ops of a model compute in f16 or
/// bf16, the weights that the optimizer steps stay f32, and in f16 the loss is scaled (Micikevicius et al., "Mixed
/// Precision Training", arXiv 1710.03740, sections 3.1 and 3.2). The Trainer uses it, too.
///
///   heed::Autocast autocast(model, heed::Precision::f16);  // once, before the loop
///   ...
///   autocast.backward([&] { return model.loss(batch, 0, context).sum; });
///   autocast.step(adamw, rate);
///
/// Inputs of floating types are cast to dtype(); ids and masks stay as they are. Losses are best computed in f32, to
/// which cross_entropy and the models' own losses turn by themselves: `x.to(heed::DType::f32)`.
class Autocast {
 public:
  /// Throws an Error for f16 where the model is on the CPU, and for bf16 where that has no products in it (see
  /// Bf16Products): give Precision::f32 there, with which this does nothing but call backward() and step().
  /// `loss_scale`: of f16, where to begin. The default is for a loss that is a sum over tokens; a mean over many
  /// may begin with more, such as {.scale = 1024}.
  Autocast(Module& model, Precision precision, const LossScaleState& loss_scale = {});

  /// The type of the model's tensors within backward(): f32 on the CPU, where bf16 is a matter of products alone.
  DType dtype() const { return dtype_; }
  /// Calls `loss`, which computes a loss of one element, with the model's parameters in the lower type, and adds the
  /// gradients of its result to those of the f32 weights. Gives that result, f32 and detached. Several calls before a
  /// step() accumulate. Throws an Error when the loss has not one element.
  Tensor backward(const std::function<Tensor()>& loss);
  /// One step of the optimizer, which then forgets the gradients. Where a gradient overflowed f16, weights and moments
  /// stay as they are, and the loss scale is halved; after LossScale::patience good steps it is doubled. Nothing waits
  /// for the device. Optimizer::clip() is called before, between backward() and this.
  void step(Optimizer& optimizer, double learning_rate);
  /// The loss scale and how many steps were left out; waits for the device. Kept in a checkpoint, it goes on from there.
  /// Throws an Error unless the model computes in f16.
  LossScaleState loss_scale_state() const;
  /// Null unless the model computes in f16.
  LossScale* loss_scale() { return loss_scale_ ? &*loss_scale_ : nullptr; }

 private:
  Module& model_;
  Precision precision_;
  DType dtype_ = DType::f32;
  std::optional<LossScale> loss_scale_;
  bool computing_ = false;  // within backward(), where parameters are copies
};

}  // namespace heed
