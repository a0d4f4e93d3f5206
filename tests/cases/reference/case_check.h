#pragma once

#include "adapters.h"

namespace heed::verify {

/// |a - b| <= absolute + relative |b|, b the reference.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

/// The tolerances that the reference's description suggests.
struct Tolerances {
  Tolerance outputs, gradients;
  static Tolerances suggested(DType dtype);
};

/// The worst element of one tensor.
struct Deviation {
  std::string tensor;
  double error = 0;  ///< |a - b| where error / allowed is largest
  double allowed = 0;
  /// Not empty: the tensors could not be compared (shapes differ, no counterpart).
  std::string problem;
  bool passed() const { return problem.empty() && error <= allowed; }
  /// A measure of failure, for finding the worst of several.
  double badness() const;
};

/// Compares element by element, indices with a tolerance of 0; NaN never passes.
Deviation compare(const std::string& name, const Tensor& ours, const Tensor& reference, Tolerance tolerance);

/// Runs a case, its outputs, losses and gradients, in a type and on a device. Returns the worst
/// deviation from the reference. Throws an Error if the case and the layer do not fit together.
Deviation worst_deviation(const ReferenceCase& reference, const Adapter& adapter, DType dtype, Device device);

}  // namespace heed::verify
