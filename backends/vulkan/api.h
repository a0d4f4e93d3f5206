#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <string>
#include <vector>

// The Vulkan functions that heed uses, in tables. The loader is opened at run time, so the same binary also
// runs on machines without Vulkan, and a test can replace a function in a device's table.

namespace heed::vulkan {

#define HEED_VULKAN_GLOBAL_FUNCTIONS(X) \
  X(CreateInstance)                     \
  X(EnumerateInstanceVersion)           \
  X(EnumerateInstanceLayerProperties)   \
  X(EnumerateInstanceExtensionProperties)

#define HEED_VULKAN_INSTANCE_FUNCTIONS(X)   \
  X(EnumeratePhysicalDevices)               \
  X(GetPhysicalDeviceProperties2)           \
  X(GetPhysicalDeviceFeatures2)             \
  X(GetPhysicalDeviceMemoryProperties)      \
  X(GetPhysicalDeviceMemoryProperties2)     \
  X(GetPhysicalDeviceQueueFamilyProperties) \
  X(EnumerateDeviceExtensionProperties)     \
  X(CreateDevice)                           \
  X(GetDeviceProcAddr)

#define HEED_VULKAN_DEVICE_FUNCTIONS(X) \
  X(GetDeviceQueue)                     \
  X(QueueSubmit)                        \
  X(DeviceWaitIdle)                     \
  X(AllocateMemory)                     \
  X(FreeMemory)                         \
  X(MapMemory)                          \
  X(CreateBuffer)                       \
  X(DestroyBuffer)                      \
  X(GetBufferMemoryRequirements)        \
  X(BindBufferMemory)                   \
  X(CreateShaderModule)                 \
  X(DestroyShaderModule)                \
  X(CreatePipelineCache)                \
  X(GetPipelineCacheData)               \
  X(CreateComputePipelines)             \
  X(CreatePipelineLayout)               \
  X(CreateDescriptorSetLayout)          \
  X(CreateDescriptorPool)               \
  X(ResetDescriptorPool)                \
  X(AllocateDescriptorSets)             \
  X(UpdateDescriptorSets)               \
  X(CreateSemaphore)                    \
  X(WaitSemaphores)                     \
  X(GetSemaphoreCounterValue)           \
  X(CreateQueryPool)                    \
  X(GetQueryPoolResults)                \
  X(CreateCommandPool)                  \
  X(ResetCommandPool)                   \
  X(AllocateCommandBuffers)             \
  X(BeginCommandBuffer)                 \
  X(EndCommandBuffer)                   \
  X(CmdBindPipeline)                    \
  X(CmdBindDescriptorSets)              \
  X(CmdPushConstants)                   \
  X(CmdDispatch)                        \
  X(CmdPipelineBarrier)                 \
  X(CmdCopyBuffer)                      \
  X(CmdFillBuffer)                      \
  X(CmdResetQueryPool)                  \
  X(CmdWriteTimestamp)

struct InstanceApi {
  VkInstance instance = VK_NULL_HANDLE;
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;
#define HEED_DECLARE(name) PFN_vk##name name = nullptr;
  HEED_VULKAN_GLOBAL_FUNCTIONS(HEED_DECLARE)
  HEED_VULKAN_INSTANCE_FUNCTIONS(HEED_DECLARE)
#undef HEED_DECLARE
};

struct DeviceApi {
  VkDevice device = VK_NULL_HANDLE;
#define HEED_DECLARE(name) PFN_vk##name name = nullptr;
  HEED_VULKAN_DEVICE_FUNCTIONS(HEED_DECLARE)
#undef HEED_DECLARE
  /// Null without VK_KHR_push_descriptor.
  PFN_vkCmdPushDescriptorSetKHR CmdPushDescriptorSetKHR = nullptr;
};

/// Opens the system's Vulkan loader and fills in the functions that need no instance. Returns an
/// error message; "" on success.
std::string open_loader(InstanceApi& api);
/// Creates api.instance and fills in its functions. Returns an error message; "" on success.
std::string create_instance(InstanceApi& api);
/// Fills in the functions of api.device.
void load_device_functions(const InstanceApi& instance, DeviceApi& api);

/// Makes a Vulkan structure, zero except for sType and pNext.
template <class Structure>
Structure structure(VkStructureType type, const void* next = nullptr) {
  Structure made{};
  made.sType = type;
  made.pNext = const_cast<void*>(next);  // pNext is const in what Vulkan reads, not in what it fills
  return made;
}

/// Returns the items that a Vulkan function lists: list(count, null) counts them, list(count,
/// items) fills them in.
template <class Item, class List>
std::vector<Item> listed(const List& list) {
  std::uint32_t count = 0;
  list(&count, static_cast<Item*>(nullptr));
  std::vector<Item> items(count);
  list(&count, items.data());
  return items;
}

bool has_extension(const std::vector<VkExtensionProperties>& extensions, const char* name);
/// Returns whether an environment variable has a value other than "" and "0".
bool is_set(const char* variable);

/// Returns the messages of the validation layers so far. HEED_VULKAN_VALIDATION=1 enables the
/// layers; if they are not installed, the first use of Vulkan throws an Error.
std::vector<std::string> validation_messages();
/// Clears the messages.
void clear_validation_messages();

/// Returns "VK_ERROR_DEVICE_LOST" and so on; "VkResult N" for a result that has no name here.
std::string name_of(VkResult result);
/// Throws an Error "vulkan: `what` failed: VK_ERROR_..." unless the result is a success;
/// OutOfMemory or DeviceLost for these failures.
void check_result(VkResult result, const char* what);

}  // namespace heed::vulkan
