#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/backends/vulkan/api.h"

// VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16. Vulkan headers before 1.3.255 and 1.4.311 lack their
// structures, so these are declared here, following the specification.

namespace heed::vulkan {

constexpr const char* cooperative_matrix_extension = "VK_KHR_cooperative_matrix";
constexpr const char* bfloat16_extension = "VK_KHR_shader_bfloat16";

struct CooperativeMatrixFeatures {
  VkStructureType sType = static_cast<VkStructureType>(1000506000);
  void* pNext = nullptr;
  VkBool32 cooperativeMatrix = VK_FALSE;
  VkBool32 cooperativeMatrixRobustBufferAccess = VK_FALSE;
};

struct Bfloat16Features {
  VkStructureType sType = static_cast<VkStructureType>(1000141000);
  void* pNext = nullptr;
  VkBool32 shaderBFloat16Type = VK_FALSE;
  VkBool32 shaderBFloat16DotProduct = VK_FALSE;
  VkBool32 shaderBFloat16CooperativeMatrix = VK_FALSE;
};

/// What a subgroup multiplies at once: rows x depth by depth x columns, each 8 or 16.
struct Fragment {
  std::uint32_t rows = 0, columns = 0, depth = 0;  ///< 0: no fragments

  bool operator==(const Fragment&) const = default;
};

/// The half-precision fragments that a device multiplies into f32: the largest of its list, and among equally
/// large ones the 8 x 16 x 16 (rows, columns, depth).
struct CooperativeMatrices {
  Fragment f16, bf16;
  std::string missing;  ///< why there are no f16 fragments
};
CooperativeMatrices cooperative_matrices(const InstanceApi& api, VkPhysicalDevice device,
                                         const std::vector<VkExtensionProperties>& extensions);

}  // namespace heed::vulkan
