#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/core/device.h"

namespace heed {

/// A Vulkan device that was found, usable or not.
struct DeviceInfo {
  Device device;
  std::string name;     ///< as the driver calls it
  std::string kind;     ///< "discrete GPU", "integrated GPU", "virtual GPU", "software" or "other"
  std::string refusal;  ///< why heed cannot use it; empty: it can
  std::vector<std::pair<std::string, std::string>> facts;  ///< what else is worth printing, by name
};

struct VulkanDevices {
  std::vector<DeviceInfo> devices;
  std::string problem;  ///< why there are none: built without Vulkan, no loader, no driver
};

/// What the Vulkan loader finds; asks it once per process.
const VulkanDevices& vulkan_devices();

/// What the matrix hardware of a usable Vulkan device is used for, and why not for the rest. Opens the device
/// and tests it at the first call.
std::string matrix_hardware_use(Device device);

/// Times the tiles of products on a Vulkan device and keeps what they reach in a file, which every program reads when it
/// opens the device: its products are then cut as is fastest on it, so that their last bits may differ from before. Takes
/// some seconds. Returns the file. Throws an Error for the CPU.
std::filesystem::path tune_device(Device device);

/// What decides the last bits of a Vulkan device's results: its name, its driver, and the digest of its tuning, if any.
std::string device_platform(Device device);

/// What a Vulkan device was given to do since it was opened.
struct DeviceCounters {
  std::int64_t dispatches = 0;
  std::int64_t barriers = 0;
  std::int64_t submissions = 0;
  std::int64_t waits = 0;  ///< how often the host waited for the device to reach a value
};
/// Throws an Error for the CPU, which counts nothing.
DeviceCounters device_counters(Device device);

/// Waits until a device has done all that it was given, and throws what it has found wrong with it, such as an index
/// out of range: a program that reads nothing afterwards would end without being told.
void synchronize(Device device);

/// The device a user names: "cpu"; "vulkan:N", by index; "vulkan:NAME", the first whose name contains NAME
/// (any case); "vulkan", the first usable discrete, else integrated or virtual GPU; "auto", the same, else
/// the CPU. A software device must be named. The empty string stands for the environment variable
/// HEED_DEVICE, or "cpu" without it. Throws an Error that lists what was found and why each was refused.
///
/// Of several processes on this machine that want a GPU each, "vulkan" and "auto" give number `place` of `places` the GPU
/// of that place among those that need not be named; an Error when there are too few.
Device find_device(std::string_view choice, int place = 0, int places = 1);

}  // namespace heed
