#pragma once

#include <compare>
#include <ostream>
#include <string>
#include <string_view>

namespace heed {

enum class DeviceType { cpu, vulkan };

/// A place where tensors live and ops run: the CPU, or the index-th Vulkan device.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend auto operator<=>(const Device&, const Device&) = default;
};

/// "cpu" or "vulkan:N".
std::string name_of(Device device);
inline std::ostream& operator<<(std::ostream& out, Device device) {
  return out << name_of(device);
}

}  // namespace heed
