#pragma once

#include <optional>

#include "heed/core/device.h"

namespace heed {

/// The device of the Vulkan tests: what HEED_TEST_VULKAN names, by default Mesa's software device.
/// Nothing, with a message that says why the test is skipped, where there is none; with
/// HEED_REQUIRE_VULKAN=1 that is a failure.
std::optional<Device> vulkan_test_device();

/// False, with a message, when the validation layers have complained or guard bytes were overwritten
/// since the program began.
bool vulkan_left_no_trace();

}  // namespace heed
