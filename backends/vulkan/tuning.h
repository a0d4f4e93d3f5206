#pragma once

#include <filesystem>
#include <string>

#include "heed/backends/vulkan/matmul_plan.h"
#include "heed/backends/vulkan/physical_devices.h"

namespace heed::vulkan {

class Gpu;

/// The size of attention's workgroups, as far as rows and limits allow it.
struct AttentionTuning {
  /// LANES of shaders/attention_products.comp, 4, 8 or 16: its tiles are 4 lanes x 4 lanes scores.
  std::int64_t lanes = 16;
  /// The subgroups of shaders/attention_fragments.comp, 1, 2 or 4: each takes the rows of a fragment.
  std::int64_t subgroups = 4;
};

/// The tiles of products with their speed on a device, and attention's workgroups: measured, or assumed for a
/// large GPU.
struct Tuning {
  TileSet scalar, fragments;
  AttentionTuning attention;
  std::string digest;  ///< of the measured figures; "" if they are assumed
};

/// What tune() saved for a device and its driver, or the assumed figures. Throws an Error that names the file
/// if it is damaged or was written for other kernels: a choice that changes results is not dropped silently.
Tuning tuning_of(const PhysicalDevice& device);

/// Times every tile of products, a copy, a launch, and attention with workgroups of each size on a device,
/// and writes the figures to the file that tuning_of() reads. They take effect when the device is next
/// opened. Returns the file.
std::filesystem::path tune(Gpu& gpu);

}  // namespace heed::vulkan
