#include "vulkan_support.h"

#include <iostream>

#include "heed/backends/vulkan/gpu.h"

namespace heed {

namespace {
std::optional<Device> used;
}

std::optional<Device> vulkan_test_device() {
  const char* named = std::getenv("HEED_TEST_VULKAN");
  try {
    used = find_device(named ? named : "vulkan:llvmpipe");
    return used;
  } catch (const Error& error) {
    if (std::getenv("HEED_REQUIRE_VULKAN")) throw;
    MESSAGE("skipped: ", error.what());
    return std::nullopt;
  }
}

bool vulkan_left_no_trace() {
  if (!used) return true;
  for (const std::string& message : vulkan::validation_messages())
    std::cerr << "Vulkan validation: " << message << '\n';
  const std::int64_t damaged = vulkan::gpu(used->index).memory().damaged_guards();
  if (damaged > 0) std::cerr << "Vulkan: the guard bytes around " << damaged << " blocks were overwritten\n";
  return vulkan::validation_messages().empty() && damaged == 0;
}

}  // namespace heed
