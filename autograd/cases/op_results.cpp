#include "heed/autograd/cases/op_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {

std::vector<std::vector<double>> op_results(const OpCase& op_case, DType dtype, Device device) {
  OpCase rounded = op_case;
  for (Tensor& input : rounded.inputs)
    if (is_floating(input.dtype())) input = cast(cast(input, DType::f32), DType::f64);
  std::vector<Tensor> inputs = inputs_for(rounded, dtype, device);
  for (Tensor& input : inputs)
    if (is_floating(input.dtype()) && op_case.differentiable) input = parameter(input);
  const Tensor output = op_case.function(inputs);
  std::vector<std::vector<double>> results{output.to_doubles()};
  if (!op_case.differentiable) return results;
  backward(sum(output * uniform(output.shape(), 0.5, 1.5, {7, 0, 0}, dtype, device)));
  for (const Tensor& input : inputs) {
    if (!input.tracked()) continue;
    const Tensor slope = gradient(input);
    results.push_back(slope.defined() ? slope.to_doubles()
                                      : std::vector<double>(static_cast<std::size_t>(input.count()), 0));
  }
  return results;
}

ResultDifference difference(const std::vector<std::vector<double>>& found,
                            const std::vector<std::vector<double>>& expected) {
  check(found.size() == expected.size(), "there are ", found.size(), " results, expected ", expected.size());
  ResultDifference worst;
  for (std::size_t t = 0; t < found.size(); ++t) {
    check(found[t].size() == expected[t].size(), "result ", t, " has ", found[t].size(),
          " elements, expected ", expected[t].size());
    double scale = 1;
    for (double x : expected[t])
      if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
    for (std::size_t i = 0; i < found[t].size(); ++i) {
      if (found[t][i] == expected[t][i]) continue;
      double error = std::abs(found[t][i] - expected[t][i]) / scale;
      if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
      if (error <= worst.worst) continue;
      worst = {error,
               t == 0 ? concat_text("output, element ", i)
                      : concat_text("gradient of floating input ", t - 1, ", element ", i),
               found[t][i], expected[t][i]};
    }
  }
  return worst;
}

}  // namespace heed
