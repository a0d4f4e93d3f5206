// The op case table, CPU against Vulkan in f32: values and gradients.

#include "heed/autograd/cases/op_cases.h"
#include "heed/tests/vulkan_compare.h"

namespace {

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
    const auto expected = op_results(op_case, DType::f32);
    std::vector<Doubles> actual;
    REQUIRE_NOTHROW(actual = op_results(op_case, DType::f32, device));
    REQUIRE(actual.size() == expected.size());
    for (std::size_t t = 0; t < actual.size(); ++t) {
      CAPTURE(t);
      check_element_errors(actual[t], expected[t]);
    }
    CHECK(op_results(op_case, DType::f32, device) == actual);  // the same bits again
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
