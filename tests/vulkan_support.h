#pragma once

#include "heed/tests/support.h"

namespace heed {

/// Returns the device of the Vulkan tests: the one that HEED_TEST_VULKAN names, by default Mesa's
/// software device. Without it, returns nothing, with a message that says why the test is skipped;
/// with HEED_REQUIRE_VULKAN=1 that is a failure.
std::optional<Device> vulkan_test_device();

/// Returns false, with a message, when the validation layers have complained or guard bytes were
/// overwritten since the program began.
bool vulkan_left_no_trace();

}  // namespace heed

/// A test case on that device, its `device`.
#define VULKAN_TEST(name) HEED_VULKAN_TEST(DOCTEST_ANONYMOUS(vulkan_test_), name)
#define HEED_VULKAN_TEST(body, name)                                   \
  static void body(heed::Device device);                               \
  TEST_CASE(name) {                                                    \
    if (const auto device = heed::vulkan_test_device()) body(*device); \
  }                                                                    \
  static void body([[maybe_unused]] heed::Device device)
