#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/training/gradient_norm.h"
#include "heed/training/loss_meter.h"

namespace heed {

/// Notices a gradient or a loss that is not finite on the device, so that no step waits to be told.
///
/// From the first such step on skip() keeps the optimizer from changing anything, and check() says, whenever
/// the host comes to ask, what went wrong in which step.
class FiniteGuard {
 public:
  /// Looks at the gradients of a step (from 1) and at the losses so far, before the update. Waits only where
  /// other parameters have gradients than in the step before. Where `forgiven` (i32 [1], may be undefined) is
  /// not 0, gradients may be infinite: a smaller loss scale can help.
  void watch(std::int64_t step, const GradientNorm& norm, const LossMeter& losses,
             const Tensor& forgiven = {});
  /// For Optimizer::step: i32 [1], 0 while all was finite, else the first step that was not.
  const Tensor& skip() const { return failed_; }
  /// Throws an Error that names the first step that was not finite, and the parameter or the loss. Waits for
  /// the device.
  void check(const LossMeter& losses) const;

 private:
  std::vector<std::string> names_;  // of the parameters
  Tensor squares_;                  // of their gradients, in the last step or in the one that failed
  Tensor failed_;
};

}  // namespace heed
