// Replaces backends/vulkan in a build without it (-D HEED_VULKAN=OFF).

#include "heed/base/error.h"
#include "heed/core/backend.h"
#include "heed/core/device.h"

namespace heed {

const VulkanDevices& vulkan_devices() {
  static const VulkanDevices none{
      {}, "this build of heed has no Vulkan backend (it was configured with HEED_VULKAN=OFF)"};
  return none;
}

std::string matrix_hardware_use(Device) {
  fail(vulkan_devices().problem);
}

std::filesystem::path tune_device(Device) {
  fail(vulkan_devices().problem);
}

std::string device_platform(Device) {
  fail(vulkan_devices().problem);
}

DeviceCounters device_counters(Device) {
  fail(vulkan_devices().problem);
}

const Backend& vulkan_backend() {
  fail(vulkan_devices().problem);
}

}  // namespace heed
