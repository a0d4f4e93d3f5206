#include "heed/backends/vulkan/api.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

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

// --- the instance, with the validation layers if they are wanted

namespace {

constexpr const char* validation_layer = "VK_LAYER_KHRONOS_validation";

struct Messages {
  std::mutex mutex;
  std::vector<std::string> texts;
};
/// Never destroyed: layers send messages while the program exits.
Messages& messages() {
  static Messages& all = *new Messages;
  return all;
}

VKAPI_ATTR VkBool32 VKAPI_CALL collect_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                               VkDebugUtilsMessageTypeFlagsEXT,
                                               const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  const std::lock_guard lock(messages().mutex);
  messages().texts.emplace_back(data->pMessage);
  return VK_FALSE;
}

bool has_validation_layer(const InstanceApi& api) {
  return std::ranges::any_of(
      listed<VkLayerProperties>(api.EnumerateInstanceLayerProperties),
      [](const VkLayerProperties& layer) { return std::strcmp(layer.layerName, validation_layer) == 0; });
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info() {
  auto info =
      structure<VkDebugUtilsMessengerCreateInfoEXT>(VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT);
  info.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  info.messageType =
      VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT;
  info.pfnUserCallback = collect_message;
  return info;
}

}  // namespace

std::string create_instance(InstanceApi& api) {
  auto application = structure<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.pEngineName = "heed";
  application.apiVersion = VK_API_VERSION_1_2;
  auto create = structure<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  create.pApplicationInfo = &application;

  VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info();
  const VkValidationFeatureEnableEXT synchronization =
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  auto features = structure<VkValidationFeaturesEXT>(VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT);
  features.enabledValidationFeatureCount = 1;
  features.pEnabledValidationFeatures = &synchronization;
  messenger.pNext = &features;
  const char* extensions[2];
  create.ppEnabledExtensionNames = extensions;
  // Without this a loader hides drivers such as MoltenVK, which lack parts of Vulkan that heed does not use.
  const auto offered = listed<VkExtensionProperties>(
      [&](auto* count, auto* items) { api.EnumerateInstanceExtensionProperties(nullptr, count, items); });
  if (has_extension(offered, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
    create.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    extensions[create.enabledExtensionCount++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
  }

  const bool validate = is_set("HEED_VULKAN_VALIDATION");
  if (validate) {
    if (!has_validation_layer(api))
      return concat_text("HEED_VULKAN_VALIDATION asks for ", validation_layer,
                         ", which is not installed (Debian: vulkan-validationlayers)");
    create.pNext = &messenger;
    create.enabledLayerCount = 1;
    create.ppEnabledLayerNames = &validation_layer;
    extensions[create.enabledExtensionCount++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  }
  const VkResult result = api.CreateInstance(&create, nullptr, &api.instance);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) return "no Vulkan driver is installed";
  if (result != VK_SUCCESS) return concat_text("vkCreateInstance failed: ", name_of(result));
#define HEED_LOAD(name) \
  api.name = reinterpret_cast<PFN_vk##name>(api.GetInstanceProcAddr(api.instance, "vk" #name));
  HEED_VULKAN_INSTANCE_FUNCTIONS(HEED_LOAD)
#undef HEED_LOAD
  if (validate) {
    const auto create_messenger = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        api.GetInstanceProcAddr(api.instance, "vkCreateDebugUtilsMessengerEXT"));
    messenger.pNext = nullptr;
    VkDebugUtilsMessengerEXT handle = VK_NULL_HANDLE;
    check_result(create_messenger(api.instance, &messenger, nullptr, &handle),
                 "vkCreateDebugUtilsMessengerEXT");
  }
  return "";
}

std::vector<std::string> validation_messages() {
  const std::lock_guard lock(messages().mutex);
  return messages().texts;
}

void clear_validation_messages() {
  const std::lock_guard lock(messages().mutex);
  messages().texts.clear();
}

// --- devices and results

void load_device_functions(const InstanceApi& instance, DeviceApi& api) {
#define HEED_LOAD(name)                                                                          \
  api.name = reinterpret_cast<PFN_vk##name>(instance.GetDeviceProcAddr(api.device, "vk" #name)); \
  check(api.name != nullptr, "vulkan: the driver lacks vk" #name);
  HEED_VULKAN_DEVICE_FUNCTIONS(HEED_LOAD)
#undef HEED_LOAD
  api.CmdPushDescriptorSetKHR = reinterpret_cast<PFN_vkCmdPushDescriptorSetKHR>(
      instance.GetDeviceProcAddr(api.device, "vkCmdPushDescriptorSetKHR"));
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value && std::strcmp(value, "0") != 0;
}

bool has_extension(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::ranges::any_of(extensions, [&](const VkExtensionProperties& extension) {
    return std::strcmp(extension.extensionName, name) == 0;
  });
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
