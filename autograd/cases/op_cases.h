#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// One row of the table that drives every kind of check of an op: finite differences, composed
/// against fused, device against device, thread counts, and the benchmarks.
struct OpCase {
  std::string name;  ///< "op" or "op/what is special"
  std::function<Tensor(std::span<const Tensor>)> function;
  std::vector<Tensor> inputs;  ///< f64 and i32 on the CPU, small; floating ones are differentiated
  bool differentiable = true;  ///< false: only values are compared
  double tolerance = 1e-6;     ///< of the finite-difference check
};

/// Returns the cases of all ops, elementwise ones from core/elementwise.def. Ragged sizes on
/// purpose.
std::vector<OpCase> op_cases();

/// Returns the inputs on another device and, for floating ones, in another dtype.
std::vector<Tensor> inputs_for(const OpCase& op_case, DType dtype, Device device = {});

/// Returns the output of a case and, if it is differentiable, the gradients of its floating inputs
/// for the loss sum(w * output), with weights w that are the same for every dtype and device.
/// Inputs are rounded to f32, so that f64 sees the same numbers.
std::vector<std::vector<double>> op_results(const OpCase& op_case, DType dtype, Device device = {});

/// The largest deviation of results from others, |a - b| / max(1, largest |b| of the tensor), and
/// its place.
struct ResultDifference {
  double worst = 0;
  std::string where = "nothing";  ///< "output, element 3" or "gradient of input 2, element 0"
  double found = 0, expected = 0;
};
ResultDifference difference(const std::vector<std::vector<double>>& found,
                            const std::vector<std::vector<double>>& expected);

}  // namespace heed
