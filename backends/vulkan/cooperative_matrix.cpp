#include "heed/backends/vulkan/cooperative_matrix.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace heed::vulkan {
namespace {

// VkComponentTypeKHR and VkScopeKHR.
constexpr std::int32_t float16_component = 0, float32_component = 1, bfloat16_component = 1000141000;
constexpr std::int32_t subgroup_scope = 3;

struct FragmentProperties {  // VkCooperativeMatrixPropertiesKHR
  VkStructureType sType = static_cast<VkStructureType>(1000506001);
  void* pNext = nullptr;
  std::uint32_t m = 0, n = 0, k = 0;
  std::int32_t a = 0, b = 0, c = 0, result = 0;
  VkBool32 saturating = VK_FALSE;
  std::int32_t scope = 0;
};
using GetFragmentProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, std::uint32_t*, FragmentProperties*);

std::vector<FragmentProperties> fragments_of(const InstanceApi& api, VkPhysicalDevice device) {
  const auto get = reinterpret_cast<GetFragmentProperties>(
      api.GetInstanceProcAddr(api.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  std::uint32_t count = 0;
  if (!get || get(device, &count, nullptr) != VK_SUCCESS) return {};
  std::vector<FragmentProperties> all(count);
  if (get(device, &count, all.data()) != VK_SUCCESS) return {};
  all.resize(count);
  return all;
}

/// The best fragment of a device's list for a type of factors.
Fragment best_of(const std::vector<FragmentProperties>& all, std::int32_t factor) {
  const auto worth = [](const Fragment& f) {  // among equal ones the wider and deeper
    return f.rows * f.columns * f.depth + (f.columns == 16 && f.depth == 16 ? 1 : 0);
  };
  const auto is_served = [](std::uint32_t extent) { return extent == 8 || extent == 16; };
  Fragment best;
  for (const FragmentProperties& p : all) {
    const Fragment one{p.m, p.n, p.k};
    if (p.a == factor && p.b == factor && p.c == float32_component && p.result == float32_component &&
        p.scope == subgroup_scope && is_served(p.m) && is_served(p.n) && is_served(p.k) &&
        worth(one) > worth(best))
      best = one;
  }
  return best;
}

}  // namespace

CooperativeMatrices cooperative_matrices(const InstanceApi& api, VkPhysicalDevice device,
                                         const std::vector<VkExtensionProperties>& extensions) {
  const auto offers = [&](const char* name) {
    return std::ranges::any_of(extensions,
                               [&](const auto& each) { return std::strcmp(each.extensionName, name) == 0; });
  };
  CooperativeMatrices found;
  if (!offers(cooperative_matrix_extension)) {
    found.missing = "the driver has no VK_KHR_cooperative_matrix";
    return found;
  }
  auto v12 =
      structure<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  CooperativeMatrixFeatures cooperative;
  cooperative.pNext = &v12;
  Bfloat16Features bfloat16;
  bfloat16.pNext = &cooperative;
  const bool asks_bfloat16 = offers(bfloat16_extension);
  auto features = structure<VkPhysicalDeviceFeatures2>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
      asks_bfloat16 ? static_cast<void*>(&bfloat16) : static_cast<void*>(&cooperative));
  api.GetPhysicalDeviceFeatures2(device, &features);
  if (!cooperative.cooperativeMatrix || !v12.vulkanMemoryModel || !v12.vulkanMemoryModelDeviceScope ||
      !v12.shaderFloat16) {
    found.missing =
        "the driver lacks cooperativeMatrix, vulkanMemoryModel, its device scope or shaderFloat16";
    return found;
  }
  const std::vector<FragmentProperties> fragments = fragments_of(api, device);
  found.f16 = best_of(fragments, float16_component);
  if (asks_bfloat16 && bfloat16.shaderBFloat16Type && bfloat16.shaderBFloat16CooperativeMatrix)
    found.bf16 = best_of(fragments, bfloat16_component);
  if (found.f16 == Fragment())
    found.missing = "it has no fragments of 8 or 16 rows, columns and depth with sums in f32";
  return found;
}

}  // namespace heed::vulkan
