#pragma once

#include <span>
#include <string>
#include <vector>

#include "heed/models/module.h"

namespace heed {

/// The global norm of the gradients of some parameters, |g| = sqrt(sum of all g_i^2), and the factor that
/// clips them (Pascanu et al., arXiv 1211.5063). Parameters without a gradient do not count.
class GradientNorm {
 public:
  /// Measures the gradients divided by `divisor` (how many tokens a sum ran over); nothing is changed.
  explicit GradientNorm(std::span<const NamedTensor> parameters, double divisor = 1);

  /// The factor for Optimizer::step, on the device: 1 / divisor, and less where the norm exceeds `limit` (0:
  /// no limit).
  Tensor scale(double limit) const;
  /// Throws an Error that names the first parameter whose gradient is not finite. Waits for the device.
  void check_finite() const;
  /// Waits for the device.
  double value() const;

 private:
  std::vector<std::string> names_;
  Tensor squares_;  // f64 [parameters with a gradient]
  Tensor norm_;     // f64 [1]
  double divisor_;
};

}  // namespace heed
