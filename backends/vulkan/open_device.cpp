#include "heed/backends/vulkan/open_device.h"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "heed/base/error.h"
#include "heed/core/profile.h"

namespace heed::vulkan {
namespace {

/// Creates a device with what the baseline requires and the capabilities offer.
VkDevice create_device(const PhysicalDevice& chosen) {
  auto v12 =
      structure<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  v12.timelineSemaphore = VK_TRUE;
  v12.shaderFloat16 = chosen.capabilities.float16 || chosen.capabilities.matrices.f16.exists();
  auto v11 = structure<VkPhysicalDeviceVulkan11Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &v12);
  v11.storageBuffer16BitAccess = chosen.capabilities.storage16;
  // SPIR-V with cooperative matrices uses the Vulkan memory model.
  const bool matrices = chosen.capabilities.matrices.f16.exists(),
             bfloat16 = chosen.capabilities.matrices.bf16.exists();
  v12.vulkanMemoryModel = v12.vulkanMemoryModelDeviceScope = matrices;  // under it atomics name their scope
  CooperativeMatrixFeatures cooperative;
  cooperative.cooperativeMatrix = VK_TRUE;
  Bfloat16Features bfloat16_types;
  bfloat16_types.shaderBFloat16Type = bfloat16_types.shaderBFloat16CooperativeMatrix = VK_TRUE;
  if (matrices) v12.pNext = &cooperative;
  if (bfloat16) cooperative.pNext = &bfloat16_types;

  const float priority = 1;
  auto queue = structure<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  queue.queueFamilyIndex = chosen.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  auto subgroups = structure<VkPhysicalDeviceSubgroupSizeControlFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES, v12.pNext);
  subgroups.subgroupSizeControl = subgroups.computeFullSubgroups = VK_TRUE;
  if (chosen.capabilities.subgroup_size_control) v12.pNext = &subgroups;
  const char* extensions[5];
  auto info = structure<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &v11);
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  if (chosen.capabilities.push_descriptor)
    extensions[info.enabledExtensionCount++] = VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME;
  if (chosen.capabilities.portability_subset)
    extensions[info.enabledExtensionCount++] = portability_subset_extension;
  if (chosen.capabilities.subgroup_size_control)
    extensions[info.enabledExtensionCount++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
  if (matrices) extensions[info.enabledExtensionCount++] = cooperative_matrix_extension;
  if (matrices && bfloat16) extensions[info.enabledExtensionCount++] = bfloat16_extension;
  info.ppEnabledExtensionNames = extensions;
  VkDevice device = VK_NULL_HANDLE;
  check_result(instance().CreateDevice(chosen.handle, &info, nullptr, &device), "vkCreateDevice");
  return device;
}

/// The device at an index; throws if it does not exist or was refused.
const PhysicalDevice& usable_device(int index) {
  const PhysicalDevices& found = physical_devices();
  check(found.problem.empty(), "device vulkan:", index, ": ", found.problem);
  check(index >= 0 && index < static_cast<int>(found.devices.size()), "device vulkan:", index,
        " does not exist: the driver has ", found.devices.size());
  const PhysicalDevice& chosen = found.devices[static_cast<std::size_t>(index)];
  check(chosen.refusal.empty(), "device vulkan:", index, " (", chosen.name,
        ") cannot be used: ", chosen.refusal);
  return chosen;
}

/// The devices that enlisted. Never destroyed, like them.
struct Registry {
  std::mutex mutex;
  std::vector<OpenDevice*> all;
};
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

void for_each_device(void (OpenDevice::*act)()) {
  const auto all = [] {
    const std::lock_guard lock(registry().mutex);
    return registry().all;
  }();
  for (OpenDevice* device : all) {
    const std::lock_guard lock(device->mutex());
    (device->*act)();
  }
}

void collect_profiles() {
  for_each_device(&OpenDevice::collect_times);
}

/// Drains the devices when the main thread's is destroyed: exit() destroys the objects of its calling thread
/// before it runs any exit handler.
struct Drainer {
  ~Drainer() {
    if (is_main_thread && !is_forked_child()) for_each_device(&OpenDevice::drain);
  }
  const bool is_main_thread = gettid() == getpid();
};

/// Runs at exit, several times: see finish_before_exit_handlers().
void finish_devices() {
  if (!is_forked_child()) for_each_device(&OpenDevice::finish);
}

}  // namespace

OpenDevice::OpenDevice(int index)
    : index_(index), chosen_(usable_device(index)), limits_(chosen_.limits), tuning_(load_tuning(chosen_)) {
  api_.device = create_device(chosen_);
  load_device_functions(instance(), api_);
  instance().GetPhysicalDeviceMemoryProperties(chosen_.handle, &memory_properties_);
}

void OpenDevice::enlist() {
  {
    const std::lock_guard lock(registry().mutex);
    registry().all.push_back(this);
  }
  finish_before_exit_handlers();
  add_profile_source(collect_profiles);
}

void finish_before_exit_handlers() {
  std::atexit(finish_devices);
}

void drain_before_exit_handlers() {
  thread_local const Drainer drainer;
  static_cast<void>(drainer);
}

void OpenDevice::lower_limits(const Limits& limits) {
  const Limits& own = chosen_.limits;
  limits_.max_range = std::min(own.max_range, limits.max_range);
  limits_.max_allocation = std::min(own.max_allocation, limits.max_allocation);
  limits_.max_groups = std::min(own.max_groups, limits.max_groups);
  limits_.max_invocations = std::min(own.max_invocations, limits.max_invocations);
  limits_.shared_bytes = std::min(own.shared_bytes, limits.shared_bytes);
  limits_.exchanging = std::min(own.exchanging, limits.exchanging);
  limits_.batch_seconds = std::min(own.batch_seconds, limits.batch_seconds);
}

std::string OpenDevice::memory_left() const {
  if (!chosen_.capabilities.memory_budget) return "";
  const MemoryBudget now = memory_budget(chosen_.handle);
  return concat_text("; by the driver this process has ", now.used, " of the ", now.budget,
                     " bytes that it may have now");
}

}  // namespace heed::vulkan
