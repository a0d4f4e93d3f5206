#pragma once

#include <filesystem>
#include <string>

#include "heed/backends/vulkan/matmul_plan.h"
#include "heed/backends/vulkan/physical_devices.h"

namespace heed::vulkan {

class Gpu;

/// The tiles of products, with what they reach on a device: measured, or as assumed for a large GPU.
struct Tuning {
  TileSet scalar, fragments;
  std::string digest;  ///< of the measured figures; "" when they are assumed
};

/// What tune() kept for a device and its driver, or the assumptions. Throws an Error that names the file when it is
/// damaged or was written for other kernels: a choice that changes results is not dropped silently.
Tuning tuning_of(const PhysicalDevice& device);

/// Times every tile of products, a copy, and a launch on a device, and writes what they reach to the file that
/// tuning_of() reads. Plans follow from it when a device is opened the next time. Returns the file.
std::filesystem::path tune(Gpu& gpu);

}  // namespace heed::vulkan
