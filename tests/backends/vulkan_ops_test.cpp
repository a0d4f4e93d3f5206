// The op case table, CPU against Vulkan in f32: values and gradients.

#include "heed/autograd/cases/op_cases.h"
#include "heed/tests/vulkan_compare.h"

namespace {

/// The output and the gradients of all floating inputs for the loss sum(w * output).
std::vector<Doubles> run(const OpCase& op_case, Device device) {
  std::vector<Tensor> inputs = inputs_for(op_case, DType::f32, device);
  for (Tensor& input : inputs)
    if (is_floating(input.dtype()) && op_case.differentiable) input = parameter(input);
  const Tensor output = op_case.function(inputs);
  std::vector<Doubles> results{output.to_doubles()};
  if (!op_case.differentiable) return results;
  backward(sum(output * uniform(output.shape(), 0.5, 1.5, {7, 0, 0}, DType::f32, device)));
  for (const Tensor& input : inputs)
    if (input.tracked()) results.push_back(gradient(input).to_doubles());
  return results;
}

void check_element_errors(const Doubles& actual, const Doubles& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double scale = std::max(1.0, std::abs(expected[i]));
    const bool same = actual[i] == expected[i] || std::abs(actual[i] - expected[i]) <= 2e-5 * scale;
    CHECK_MESSAGE(same, "element ", i, ": ", actual[i], " on Vulkan, ", expected[i], " on the CPU");
  }
}

void compare_all(Device device) {
  for (const OpCase& op_case : op_cases()) {
    CAPTURE(op_case.name);
    const auto expected = run(op_case, {});
    std::vector<Doubles> actual;
    REQUIRE_NOTHROW(actual = run(op_case, device));
    REQUIRE(actual.size() == expected.size());
    for (std::size_t t = 0; t < actual.size(); ++t) {
      CAPTURE(t);
      check_element_errors(actual[t], expected[t]);
    }
    CHECK(run(op_case, device) == actual);  // the same bits again
  }
}

}  // namespace

VULKAN_TEST("vulkan: every op agrees with the CPU") {
  compare_all(device);
}

VULKAN_TEST("vulkan: every op agrees with the CPU when the device's limits are tiny") {
  const test::LoweredLimits limits(device, [](vulkan::Limits& tiny) {
    tiny.max_range = 1024;
    tiny.max_groups = 3;
  });
  compare_all(device);
}

VULKAN_TEST("vulkan: composed ops agree with the CPU") {
  const ComposeOnly compose_only;
  compare_all(device);
}
