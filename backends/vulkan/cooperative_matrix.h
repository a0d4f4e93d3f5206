#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/backends/vulkan/api.h"

// VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16, whose structures headers before 1.3.255 and 1.4.311
// do not have: they are declared here after the specification.

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

/// The fragments of halves that a device multiplies into f32 within a subgroup: rows x 16 times 16 x 16.
struct CooperativeMatrices {
  std::uint32_t f16_rows = 0, bf16_rows = 0;  ///< 16 where the device's list has it, else 8; 0: neither
  std::string missing;                        ///< why not f16
};
CooperativeMatrices cooperative_matrices(const InstanceApi& api, VkPhysicalDevice device,
                                         const std::vector<VkExtensionProperties>& extensions);

}  // namespace heed::vulkan
