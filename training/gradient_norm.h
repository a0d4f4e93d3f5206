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
  /// The parameters that have a gradient, and the sum of squares of each gradient: f64 on the CPU, f32
  /// elsewhere.
  const std::vector<std::string>& names() const { return names_; }
  const Tensor& squares() const { return squares_; }
  /// The norm, [1], on the device.
  const Tensor& norm() const { return norm_; }
  /// Waits for the device.
  double value() const { return norm_.item(); }

 private:
  std::vector<std::string> names_;
  Tensor squares_;  // [parameters with a gradient]
  Tensor norm_;     // [1]
  double divisor_;
};

}  // namespace heed
