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

/// How a model computes while it trains; its weights stay f32. On a GPU, f16 and bf16 are the type of all
/// computations, and high and medium are f32. On the CPU, high and medium are a MatmulPrecision, bf16 is
/// medium, and f16 is not available.
enum class Precision { f32, f16, bf16, high, medium };

/// Returns "f32", "f16", "bf16", "high", "medium".
std::vector<std::string> precision_names();
std::string_view name_of(Precision precision);
/// Returns the precision with this name. Throws an Error listing the names if there is none.
Precision precision_from_name(std::string_view name);

/// Returns the dtype of a precision: f32, f16 or bf16.
DType dtype_in(Precision precision);
/// Returns the precision of products on the CPU in training.
MatmulPrecision matmul_precision_in(Precision precision);
/// Returns the precision of products in answers and evaluations: f16 and bf16 are highest there.
MatmulPrecision answer_precision_in(Precision precision);

/// Throws an Error that says what to do if the device does not support the precision.
void check_precision(Precision precision, Device device);
/// Returns a remark if the device computes in f32 instead; otherwise "".
std::string precision_remark(Precision precision, Device device);

/// Replaces the parameters of a model by half-precision copies while it lives, so that all its ops
/// need half the memory and traffic; its destructor restores the f32 weights (Micikevicius et al.,
/// "Mixed Precision Training", arXiv 1710.03740, section 3.1). On the CPU the parameters are not
/// replaced; instead, this thread's matrix products have the MatmulPrecision.
class LowerPrecision {
 public:
  /// Throws an Error if the device has no half types (see check_precision). Does nothing with
  /// Precision::f32.
  LowerPrecision(Module& model, Precision precision) : LowerPrecision(model.parameters(), precision) {}
  LowerPrecision(const std::vector<NamedTensor>& parameters, Precision precision);
  ~LowerPrecision();
  LowerPrecision& operator=(LowerPrecision&&) = delete;

  /// Adds the gradients of the copies, times `factor` (f32, one element, may be undefined), to the
  /// gradients of the weights, and clears them. Call it after backward().
  void collect_gradients(const Tensor& factor) const;

 private:
  struct Replaced {
    Tensor* member;
    Tensor weight;  // f32
  };
  std::vector<Replaced> replaced_;
  std::optional<WithMatmulPrecision> products_;  // on the CPU
};

/// The part of a LossScale that a checkpoint stores.
struct LossScaleState {
  double scale = 16;            ///< for a loss that is a sum over tokens
  std::int64_t good_steps = 0;  ///< since the scale last changed
  std::int64_t skipped = 0;     ///< steps skipped in all
};

/// The factor that multiplies the loss so that small gradients do not vanish in f16 (section 3.2 of
/// the same paper). It is halved when a gradient overflows, and that step is skipped; it is doubled
/// after `patience` good steps. Everything stays on the device, so no step waits.
class LossScale {
 public:
  static constexpr double lowest = 0x1p-16, highest = 0x1p16;
  static constexpr std::int64_t patience = 1000;

  explicit LossScale(Device device, const LossScaleState& state = {});
  /// The factor, f32 [1], for the loss. The gradients are multiplied by inverse() afterwards.
  const Tensor& factor() const { return scale_; }
  Tensor inverse() const;
  /// Examines the norm of a step's gradients, [1], and chooses the next scale.
  void update(const Tensor& norm);
  /// 1 if the step just examined should be skipped; i32 [1].
  const Tensor& skip() const { return skip_; }
  /// 1 if a smaller scale may still help; i32 [1].
  Tensor can_shrink() const;
  /// The state for a checkpoint. Waits for the device.
  LossScaleState state() const;

 private:
  Tensor scale_;    // f32 [1]
  Tensor good_;     // i32 [1]
  Tensor skipped_;  // i32 [1]
  Tensor skip_;     // i32 [1]
};

/// Mixed precision for a custom training loop: matrix products, attention and all other ops of a
/// model compute in f16 or bf16, the weights that the optimizer updates stay f32, and in f16 the
/// loss is scaled (Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740, sections 3.1
/// and 3.2). The Trainer uses it too.
///
///   heed::Autocast autocast(model, heed::Precision::f16);  // once, before the loop
///   ...
///   autocast.backward([&] { return model.loss(batch, 0, context).sum; });
///   autocast.step(adamw, rate);
///
/// Cast floating-point inputs to dtype(); leave ids and masks as they are. Compute losses in f32:
/// cross_entropy and the models' own losses convert by themselves, others need
/// `x.to(heed::DType::f32)`.
class Autocast {
 public:
  /// Throws an Error for f16 if the model is on the CPU. Precision::f32 makes this a plain
  /// backward() and step(). `loss_scale`: the starting scale for f16. The default suits a loss that
  /// is a sum over tokens; a mean over many tokens can start higher, such as {.scale = 1024}.
  Autocast(Module& model, Precision precision, const LossScaleState& loss_scale = {})
      : Autocast(model.parameters(), precision, loss_scale) {}
  /// Uses parameters that do not belong to a single module.
  Autocast(std::vector<NamedTensor> parameters, Precision precision, const LossScaleState& loss_scale = {});

  /// The type of the model's tensors within backward(): f32 on the CPU, where the precision
  /// only affects matrix products.
  DType dtype() const { return dtype_; }
  /// Calls `loss`, which returns a one-element loss, with the model's parameters in the lower type,
  /// and adds the gradients of the result to those of the f32 weights. Returns that result, f32 and
  /// detached. Several calls before a step() accumulate. Throws an Error unless the loss has one
  /// element.
  Tensor backward(const std::function<Tensor()>& loss);
  /// One optimizer step; clears the gradients afterwards. If a gradient overflowed f16, weights and
  /// moments do not change and the loss scale is halved; after LossScale::patience good steps it is
  /// doubled. Does not wait for the device. To clip, call Optimizer::clip() between backward() and
  /// this.
  void step(Optimizer& optimizer, double learning_rate);
  /// The loss scale and the number of skipped steps; waits for the device. Save it in a checkpoint
  /// to continue from it. Throws an Error unless the model computes in f16.
  LossScaleState loss_scale_state() const;
  /// The loss scale; null unless the model computes in f16.
  LossScale* loss_scale() { return loss_scale_ ? &*loss_scale_ : nullptr; }

 private:
  std::vector<NamedTensor> parameters_;
  Precision precision_;
  DType dtype_ = DType::f32;
  std::optional<LossScale> loss_scale_;
  bool computing_ = false;  // within backward(), where parameters are copies
};

}  // namespace heed
