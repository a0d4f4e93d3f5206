// The chain of trust over the op case table: finite differences in f64, composed against fused in f64, f32
// against f64, and the same bits for every number of threads.

#include <doctest/doctest.h>

#include <cmath>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/backend.h"
#include "heed/core/device.h"
#include "heed/tests/cases/op_cases.h"

using namespace heed;

namespace {

/// The output and the gradients of all floating inputs, as f64, for the loss sum(w * output).
std::vector<std::vector<double>> run(const OpCase& op_case, DType dtype) {
  std::vector<Tensor> inputs = inputs_for(op_case, dtype);
  for (Tensor& input : inputs) {
    if (is_floating(input.dtype()) && op_case.differentiable) input = parameter(input);
  }
  const Tensor output = op_case.function(inputs);
  std::vector<std::vector<double>> results{cast(output.detach(), DType::f64).to_vector<double>()};
  if (!op_case.differentiable) return results;
  const Tensor weights = uniform(output.shape(), 0.5, 1.5, {7, 0, 0}, DType::f64);
  backward(sum(output * cast(weights, dtype)));
  for (const Tensor& input : inputs) {
    if (!input.tracked()) continue;
    REQUIRE(gradient(input).defined());
    results.push_back(cast(gradient(input), DType::f64).to_vector<double>());
  }
  return results;
}

void check_close(const std::vector<std::vector<double>>& actual,
                 const std::vector<std::vector<double>>& expected, double tolerance) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t t = 0; t < actual.size(); ++t) {
    REQUIRE(actual[t].size() == expected[t].size());
    for (std::size_t i = 0; i < actual[t].size(); ++i) {
      const double scale = std::max(1.0, std::abs(expected[t][i]));
      CHECK_MESSAGE(std::abs(actual[t][i] - expected[t][i]) <= tolerance * scale, "tensor ", t, " element ",
                    i, ": ", actual[t][i], " against ", expected[t][i]);
    }
  }
}

}  // namespace

TEST_CASE("ops: gradients agree with finite differences") {
  for (const OpCase& op_case : op_cases()) {
    if (!op_case.differentiable) continue;
    CAPTURE(op_case.name);
    const GradcheckResult result = gradcheck(op_case.function, op_case.inputs, op_case.tolerance);
    CHECK_MESSAGE(result.passed, "input ", result.worst_input, " element ", result.worst_element, ": ",
                  result.analytic, " against ", result.numeric);
  }
}

TEST_CASE("ops: composed bodies agree with fused kernels") {
  for (const OpCase& op_case : op_cases()) {
    CAPTURE(op_case.name);
    const auto fused = run(op_case, DType::f64);
    const ComposeOnly compose_only;
    check_close(run(op_case, DType::f64), fused, 1e-10);
  }
}

TEST_CASE("ops: f32 agrees with f64") {
  for (const OpCase& op_case : op_cases()) {
    CAPTURE(op_case.name);
    check_close(run(op_case, DType::f32), run(op_case, DType::f64), 2e-5);
  }
}

TEST_CASE("ops: any number of threads gives the same bits") {
  const int threads = cpu_threads();
  for (const OpCase& op_case : op_cases()) {
    CAPTURE(op_case.name);
    set_cpu_threads(1);
    const auto single = run(op_case, DType::f32);
    for (int count : {2, 3, 8}) {
      set_cpu_threads(count);
      CHECK(run(op_case, DType::f32) == single);
    }
  }
  set_cpu_threads(threads);
}
