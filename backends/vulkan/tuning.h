#pragma once

#include <filesystem>
#include <string>

#include "heed/backends/vulkan/matmul_plan.h"
#include "heed/backends/vulkan/physical_devices.h"

namespace heed::vulkan {

class Gpu;

/// How large attention's workgroups are, where rows and limits allow it.
struct AttentionTuning {
  /// Of shaders/attention_products.glsl, 4, 8 or 16: tiles of 4 lanes x 4 lanes scores.
  std::int64_t lanes = 16;
  /// Of shaders/attention_fragments.glsl, 1, 2 or 4: each takes the rows of a fragment.
  std::int64_t subgroups = 4;
};

/// The tiles of products, with what they reach on a device, and attention's workgroups: measured, or as
/// assumed for a large GPU.
struct Tuning {
  TileSet scalar, fragments;
  AttentionTuning attention;
  std::string digest;  ///< of the measured figures; "" when they are assumed
};

/// What tune() kept for a device and its driver, or the assumptions. Throws an Error that names the file when
/// it is damaged or was written for other kernels: a choice that changes results is not dropped silently.
Tuning tuning_of(const PhysicalDevice& device);

/// Times every tile of products, a copy, a launch, and attention with workgroups of each size on a device,
/// and writes what they reach to the file that tuning_of() reads. Plans follow from it when a device is
/// opened the next time. Returns the file.
std::filesystem::path tune(Gpu& gpu);

}  // namespace heed::vulkan
