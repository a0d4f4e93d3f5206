#include <algorithm>
#include <cmath>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

/// sum(w * function(inputs)) without recording.
static double weighted_output(const std::function<Tensor(std::span<const Tensor>)>& function,
                              std::span<const Tensor> inputs, const Tensor& weights) {
  const NoGrad no_grad;
  return sum(function(inputs) * weights).item();
}

GradcheckResult gradcheck(const std::function<Tensor(std::span<const Tensor>)>& function,
                          std::vector<Tensor> inputs, double tolerance, double step,
                          std::int64_t max_elements) {
  check(static_cast<bool>(function), "gradcheck: the function is empty");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i].dtype() != DType::f32, "gradcheck: input ", i,
          " has type f32; finite differences need f64");
    if (inputs[i].dtype() == DType::f64) {
      // A private contiguous copy, since its elements are perturbed in place.
      inputs[i] =
          parameter(Tensor::from(inputs[i].to_vector<double>(), inputs[i].shape(), inputs[i].device()));
    }
  }
  const RecordingScope record(true);  // even if the caller has turned recording off
  const Tensor output = function(inputs);
  check(output.dtype() == DType::f64, "gradcheck: the output has type ", output.dtype(), ", not f64");
  const Tensor weights =
      uniform(output.shape(), 0.5, 1.5, RandomKey{2024, 0, 0}, DType::f64, output.device());
  backward(sum(output * weights));

  GradcheckResult result{true};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != DType::f64) continue;
    const Tensor grad = gradient(inputs[i]);
    const std::vector<double> analytic =
        grad.defined() ? grad.to_vector<double>() : std::vector<double>(inputs[i].count(), 0.0);
    std::vector<double> values = inputs[i].to_vector<double>();
    const std::int64_t count = inputs[i].count();
    const std::int64_t checked = std::min(count, max_elements);
    for (std::int64_t c = 0; c < checked; ++c) {
      const auto element = static_cast<std::size_t>(c * count / checked);
      const double original = values[element];
      const auto shifted = [&](double by) {
        values[element] = original + by;
        inputs[i].assign(std::span<const double>(values));
        return weighted_output(function, inputs, weights);
      };
      const double numeric = (shifted(step) - shifted(-step)) / (2 * step);
      shifted(0);
      const double scale = std::max({1.0, std::abs(analytic[element]), std::abs(numeric)});
      const double error = std::abs(analytic[element] - numeric) / scale;
      if (!(error <= result.worst_error)) {  // also when it is NaN
        result = {result.passed,     error,  static_cast<int>(i), static_cast<std::int64_t>(element),
                  analytic[element], numeric};
      }
      if (!(error <= tolerance)) result.passed = false;
    }
  }
  return result;
}

}  // namespace heed
