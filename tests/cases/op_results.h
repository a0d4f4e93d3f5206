#pragma once

#include <string>
#include <vector>

#include "heed/tests/cases/op_cases.h"

namespace heed {

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
