// Every attention variant's layer, and whole small models, CPU against Vulkan in f32: outputs or losses, and
// all gradients. A discrete choice that fell out differently would show in both.

#include "heed/autograd/cases/op_cases.h"
#include "heed/models/cases/model_cases.h"
#include "heed/tests/vulkan_support.h"

namespace {

void compare_cases(Device device, const std::string& kind) {
  for (const OpCase& one : model_cases()) {
    if (!one.name.starts_with(kind)) continue;
    CAPTURE(one.name);
    const auto expected = op_results(one, DType::f32, {});
    std::vector<Doubles> found;
    CHECK_NOTHROW(found = op_results(one, DType::f32, device));
    if (found.empty()) continue;
    const ResultDifference worst = difference(found, expected);
    CHECK_MESSAGE(worst.worst <= 2e-5, worst.where, ": ", worst.found, " on Vulkan, ", worst.expected,
                  " on the CPU");
  }
}

}  // namespace

VULKAN_TEST("vulkan: every attention variant agrees with the CPU") {
  compare_cases(device, "attention/");
}

VULKAN_TEST("vulkan: whole models agree with the CPU") {
  compare_cases(device, "model/");
}
