#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/low_precision.h"
#include "heed/models/module.h"
#include "heed/training/optimizer.h"

namespace heed {

/// In which type a model computes while it trains; its weights stay f32. On the CPU bf16 is a matter of
/// products alone (Bf16Products), for processors that have them, and there is no f16.
enum class Precision { f32, f16, bf16 };

/// "f32", "f16", "bf16".
std::vector<std::string> precision_names();
std::string_view name_of(Precision precision);
/// Throws an Error that lists the names for one that is not among them.
Precision precision_from_name(std::string_view name);

/// Throws an Error that says what to do where a device, or this processor, does not compute in that type.
void check_precision(Precision precision, Device device);

/// While it lives, the parameters of a model are copies in a half type, so that all its ops compute with half
/// the memory and traffic; the f32 weights come back at the end (Micikevicius et al., "Mixed Precision
/// Training", arXiv 1710.03740, section 3.1). On the CPU they stay what they are, and what this thread
/// multiplies is rounded to bf16.
class LowerPrecision {
 public:
  /// Throws an Error for a device without half types (see check_precision). With Precision::f32 it does
  /// nothing.
  LowerPrecision(Module& model, Precision precision);
  ~LowerPrecision();
  LowerPrecision(const LowerPrecision&) = delete;
  LowerPrecision& operator=(const LowerPrecision&) = delete;

  /// After backward(): adds the gradients of the copies, times `factor` (f32, one element, may be
  /// undefined), to those of the weights, and forgets them.
  void collect_gradients(const Tensor& factor) const;

 private:
  struct Replaced {
    Tensor* member;
    Tensor weight;  // f32
  };
  std::vector<Replaced> replaced_;
  std::optional<Bf16Products> products_;  // on the CPU
};

/// What a checkpoint keeps of a LossScale.
struct LossScaleState {
  double scale = 16;            ///< of a loss that is a sum over tokens
  std::int64_t good_steps = 0;  ///< since the scale last changed
  std::int64_t skipped = 0;     ///< steps left out, in all
};

/// The factor by which the loss is multiplied so that small gradients do not vanish in f16 (section 3.2 of
/// the same paper): halved when a gradient overflows, whose step is left out, and doubled after `patience`
/// good steps. All on the device: no step waits to be told.
class LossScale {
 public:
  static constexpr double lowest = 0x1p-16, highest = 0x1p16;
  static constexpr std::int64_t patience = 1000;

  explicit LossScale(Device device, const LossScaleState& state = {});
  /// f32 [1]: for the loss, and for the gradients afterwards.
  const Tensor& factor() const { return scale_; }
  Tensor inverse() const;
  /// Looks at the norm of a step's gradients, [1], and chooses the next scale.
  void update(const Tensor& norm);
  /// i32 [1]: 1 when the step just looked at is to be left out.
  const Tensor& skip() const { return skip_; }
  /// i32 [1]: 1 when a smaller scale may still help.
  Tensor can_shrink() const;
  /// Waits for the device.
  LossScaleState state() const;

 private:
  Tensor scale_;    // f32 [1]
  Tensor good_;     // i32 [1]
  Tensor skipped_;  // i32 [1]
  Tensor skip_;     // i32 [1]
};

/// Mixed precision in a training loop of your own: products, attention and all other ops of a model compute
/// in f16 or bf16, the weights that the optimizer steps stay f32, and in f16 the loss is scaled (Micikevicius
/// et al., "Mixed Precision Training", arXiv 1710.03740, sections 3.1 and 3.2). The Trainer uses it, too.
///
///   heed::Autocast autocast(model, heed::Precision::f16);  // once, before the loop
///   ...
///   autocast.backward([&] { return model.loss(batch, 0, context).sum; });
///   autocast.step(adamw, rate);
///
/// Inputs of floating types are cast to dtype(); ids and masks stay as they are. Losses are best computed in
/// f32, to which cross_entropy and the models' own losses turn by themselves: `x.to(heed::DType::f32)`.
class Autocast {
 public:
  /// Throws an Error for f16 where the model is on the CPU, and for bf16 where that has no products in it
  /// (see Bf16Products): give Precision::f32 there, with which this does nothing but call backward() and
  /// step(). `loss_scale`: of f16, where to begin. The default is for a loss that is a sum over tokens; a
  /// mean over many may begin with more, such as {.scale = 1024}.
  Autocast(Module& model, Precision precision, const LossScaleState& loss_scale = {});

  /// The type of the model's tensors within backward(): f32 on the CPU, where bf16 is a matter of products
  /// alone.
  DType dtype() const { return dtype_; }
  /// Calls `loss`, which computes a loss of one element, with the model's parameters in the lower type, and
  /// adds the gradients of its result to those of the f32 weights. Gives that result, f32 and detached.
  /// Several calls before a step() accumulate. Throws an Error when the loss has not one element.
  Tensor backward(const std::function<Tensor()>& loss);
  /// One step of the optimizer, which then forgets the gradients. Where a gradient overflowed f16, weights
  /// and moments stay as they are, and the loss scale is halved; after LossScale::patience good steps it is
  /// doubled. Nothing waits for the device. Optimizer::clip() is called before, between backward() and this.
  void step(Optimizer& optimizer, double learning_rate);
  /// The loss scale and how many steps were left out; waits for the device. Kept in a checkpoint, it goes on
  /// from there. Throws an Error unless the model computes in f16.
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
