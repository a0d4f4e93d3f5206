#include "heed/core/device.h"

namespace heed {

std::string name_of(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : "vulkan:" + std::to_string(device.index);
}

}  // namespace heed
