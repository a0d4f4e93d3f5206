#include "heed/backends/vulkan/api.h"

#include <dlfcn.h>

#include "heed/base/error.h"

namespace heed::vulkan {

namespace {
// The loader's file names on each system; the first that opens is used.
constexpr const char* loader_names[] = {
#if defined(__APPLE__)
    "libvulkan.dylib", "libvulkan.1.dylib", "libMoltenVK.dylib"
#elif defined(__ANDROID__)
    "libvulkan.so"
#else
    "libvulkan.so.1", "libvulkan.so"
#endif
};
}  // namespace

std::string open_loader(InstanceApi& api) {
  void* library = nullptr;
  std::string reason;
  for (const char* name : loader_names) {
    // Never closed: drivers leave threads and exit handlers behind.
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library) break;
    const char* why = dlerror();
    if (reason.empty()) reason = why ? why : name;
  }
  if (!library)
    return concat_text("the Vulkan loader cannot be opened (", reason,
                       "); install the driver's Vulkan package (Debian: libvulkan1)");
  api.GetInstanceProcAddr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  if (!api.GetInstanceProcAddr) return "the Vulkan loader has no vkGetInstanceProcAddr";
#define HEED_LOAD(name) \
  api.name = reinterpret_cast<PFN_vk##name>(api.GetInstanceProcAddr(nullptr, "vk" #name));
  HEED_VULKAN_GLOBAL_FUNCTIONS(HEED_LOAD)
#undef HEED_LOAD
  if (!api.CreateInstance || !api.EnumerateInstanceVersion)
    return "the Vulkan loader is older than version 1.1";
  return "";
}

void load_instance_functions(InstanceApi& api) {
#define HEED_LOAD(name) \
  api.name = reinterpret_cast<PFN_vk##name>(api.GetInstanceProcAddr(api.instance, "vk" #name));
  HEED_VULKAN_INSTANCE_FUNCTIONS(HEED_LOAD)
#undef HEED_LOAD
}

void load_device_functions(const InstanceApi& instance, DeviceApi& api) {
#define HEED_LOAD(name)                                                                          \
  api.name = reinterpret_cast<PFN_vk##name>(instance.GetDeviceProcAddr(api.device, "vk" #name)); \
  check(api.name != nullptr, "vulkan: the driver lacks vk" #name);
  HEED_VULKAN_DEVICE_FUNCTIONS(HEED_LOAD)
#undef HEED_LOAD
  api.CmdPushDescriptorSetKHR = reinterpret_cast<PFN_vkCmdPushDescriptorSetKHR>(
      instance.GetDeviceProcAddr(api.device, "vkCmdPushDescriptorSetKHR"));
}

std::string name_of(VkResult result) {
  switch (result) {
#define HEED_CASE(name) \
  case name:            \
    return #name;
    HEED_CASE(VK_SUCCESS)
    HEED_CASE(VK_NOT_READY)
    HEED_CASE(VK_TIMEOUT)
    HEED_CASE(VK_ERROR_OUT_OF_HOST_MEMORY)
    HEED_CASE(VK_ERROR_OUT_OF_DEVICE_MEMORY)
    HEED_CASE(VK_ERROR_INITIALIZATION_FAILED)
    HEED_CASE(VK_ERROR_DEVICE_LOST)
    HEED_CASE(VK_ERROR_MEMORY_MAP_FAILED)
    HEED_CASE(VK_ERROR_LAYER_NOT_PRESENT)
    HEED_CASE(VK_ERROR_EXTENSION_NOT_PRESENT)
    HEED_CASE(VK_ERROR_FEATURE_NOT_PRESENT)
    HEED_CASE(VK_ERROR_INCOMPATIBLE_DRIVER)
    HEED_CASE(VK_ERROR_TOO_MANY_OBJECTS)
    HEED_CASE(VK_ERROR_INVALID_SHADER_NV)
#undef HEED_CASE
    default:
      return concat_text("VkResult ", static_cast<int>(result));
  }
}

void check_result(VkResult result, const char* what) {
  if (result >= 0) return;
  const std::string message = concat_text("vulkan: ", what, " failed: ", name_of(result));
  if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
    throw OutOfMemory(message);
  if (result == VK_ERROR_DEVICE_LOST) throw DeviceLost(message);
  throw Error(message);
}

}  // namespace heed::vulkan
