#include "heed/backends/vulkan/gpu.h"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "heed/backends/vulkan/cooperative_matrix.h"
#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/core/profile.h"

namespace heed::vulkan {

DeviceErrors::DeviceErrors(Gpu& gpu)
    : gpu_(gpu),
      stride_(std::max<std::uint64_t>(gpu.limits().offset_alignment, sizeof(std::uint32_t))),
      words_(std::make_unique<HostBuffer>(gpu, slots * stride_, true)),
      slots_(slots) {
  for (std::size_t i = 0; i < slots; ++i) word(i) = no_error;
}

std::uint32_t& DeviceErrors::word(std::size_t slot) const {
  return *reinterpret_cast<std::uint32_t*>(words_->data() + slot * stride_);
}

std::uint64_t DeviceErrors::add(std::string text) {
  if (slots_[next_].value != 0) {  // the ring is full: waits for its oldest launch
    gpu_.stream().wait(slots_[next_].value);
    check();
  }
  slots_[next_] = {gpu_.stream().recording(), std::move(text)};
  const std::size_t slot = next_;
  next_ = (next_ + 1) % slots;
  return slot * stride_;
}

void DeviceErrors::check() {
  const std::uint64_t done = gpu_.stream().completed();
  std::string first;
  for (; slots_[oldest_].value != 0 && slots_[oldest_].value <= done; oldest_ = (oldest_ + 1) % slots) {
    const std::uint32_t position = word(oldest_);
    if (position != no_error && first.empty())
      first = concat_text(slots_[oldest_].text, " (position ", position, ")");
    word(oldest_) = no_error;
    slots_[oldest_].value = 0;
  }
  heed::check(first.empty(), first);
}

namespace {

/// Enables what the baseline requires and what the capabilities say.
VkDevice create_device(const PhysicalDevice& chosen) {
  auto v12 =
      structure<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  v12.timelineSemaphore = VK_TRUE;
  v12.shaderFloat16 = chosen.capabilities.float16 || chosen.capabilities.cooperative_matrix;
  auto v11 = structure<VkPhysicalDeviceVulkan11Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &v12);
  v11.storageBuffer16BitAccess = chosen.capabilities.storage16;
  // SPIR-V with cooperative matrices uses the Vulkan memory model.
  const bool matrices = chosen.capabilities.cooperative_matrix,
             bfloat16 = chosen.capabilities.cooperative_bfloat16;
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

/// All Gpu objects, and those that gpu() has opened, by index. Never destroyed, like the latter.
struct Registry {
  std::mutex mutex;
  std::set<Gpu*> all;
  std::map<int, Gpu*> opened;
};
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

std::vector<Gpu*> all_gpus() {
  const std::lock_guard lock(registry().mutex);
  return {registry().all.begin(), registry().all.end()};
}

/// Adds the devices' measurements to the profile.
void collect_profiles() {
  for (Gpu* gpu : all_gpus()) {
    const std::lock_guard lock(gpu->mutex());
    gpu->stream().collect_times();
  }
}

/// Drains the devices when it is destroyed: exit() destroys the thread_local objects of its calling thread
/// before it runs any exit handler.
struct Drainer {
  ~Drainer() {
    if (forked_from_driver()) return;
    for (Gpu* gpu : all_gpus()) {
      const std::lock_guard lock(gpu->mutex());
      gpu->stream().drain();
    }
  }
};

/// Runs at exit, several times: see finish_before_exit_handlers().
void finish_devices() {
  if (forked_from_driver()) return;
  for (Gpu* gpu : all_gpus()) {
    const std::lock_guard lock(gpu->mutex());
    gpu->stream().finish();
    gpu->pipelines().save();
  }
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

}  // namespace

Gpu::Gpu(int index)
    : index_(index), chosen_(usable_device(index)), limits_(chosen_.limits), tuning_(tuning_of(chosen_)) {
  api_.device = create_device(chosen_);
  load_device_functions(instance(), api_);
  instance().GetPhysicalDeviceMemoryProperties(chosen_.handle, &memory_properties_);
  pipelines_ = std::make_unique<Pipelines>(*this);
  stream_ = std::make_unique<Stream>(*this);
  memory_ = std::make_unique<Memory>(*this);
  staging_ = std::make_unique<Staging>(*this);
  errors_ = std::make_unique<DeviceErrors>(*this);
  placeholder_ = std::make_unique<HostBuffer>(*this, 256, false);
  {
    const std::lock_guard lock(registry().mutex);
    registry().all.insert(this);
  }
  finish_before_exit_handlers();
  add_profile_source(collect_profiles);
}

Gpu::~Gpu() {
  const std::lock_guard lock(registry().mutex);
  registry().all.erase(this);
}

void finish_before_exit_handlers() {
  std::atexit(finish_devices);
}

void drain_before_exit_handlers() {
  thread_local const bool is_main_thread = gettid() == getpid();
  if (!is_main_thread) return;
  thread_local const Drainer drainer;
  static_cast<void>(drainer);
}

void Gpu::lower_limits(const Limits& limits) {
  const Limits& own = chosen_.limits;
  limits_.max_range = std::min(own.max_range, limits.max_range);
  limits_.max_allocation = std::min(own.max_allocation, limits.max_allocation);
  limits_.max_groups = std::min(own.max_groups, limits.max_groups);
  limits_.max_invocations = std::min(own.max_invocations, limits.max_invocations);
  limits_.shared_bytes = std::min(own.shared_bytes, limits.shared_bytes);
  limits_.exchanging = std::min(own.exchanging, limits.exchanging);
  limits_.batch_seconds = std::min(own.batch_seconds, limits.batch_seconds);
}

std::string Gpu::memory_left() const {
  if (!chosen_.capabilities.memory_budget) return "";
  const MemoryBudget now = memory_budget(chosen_.handle);
  return concat_text("; by the driver this process has ", now.used, " of the ", now.budget,
                     " bytes that it may have now");
}

Gpu& gpu(int index) {
  check(!forked_from_driver(), "device vulkan:", index,
        ": this process was forked from one that uses Vulkan, whose ",
        "driver does not survive fork(); use the device in the parent alone, or start a program of its own "
        "(exec)");
  static std::mutex mutex;  // not the registry's, which the new device locks
  const std::lock_guard lock(mutex);
  std::map<int, Gpu*>& opened = registry().opened;
  const auto found = opened.find(index);
  return found != opened.end() ? *found->second : *opened.emplace(index, new Gpu(index)).first->second;
}

}  // namespace heed::vulkan

namespace heed {

std::string device_platform(Device device) {
  const vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const std::string& tuned = gpu.tuning().digest;
  return concat_text(gpu.name(), ", ", gpu.driver(), tuned.empty() ? "" : ", tuned ", tuned);
}

DeviceCounters device_counters(Device device) {
  check(device.type == DeviceType::vulkan, "device_counters: ", device, " counts nothing");
  vulkan::Gpu& gpu = vulkan::gpu(device.index);
  const std::lock_guard lock(gpu.mutex());
  return gpu.stream().counters();
}

const VulkanDevices& vulkan_devices() {
  static const VulkanDevices all = [] {
    VulkanDevices list;
    const vulkan::PhysicalDevices& found = vulkan::physical_devices();
    list.problem = found.problem;
    for (const vulkan::PhysicalDevice& device : found.devices) {
      const auto yes_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
      list.devices.push_back({{DeviceType::vulkan, static_cast<int>(list.devices.size())},
                              device.name,
                              device.kind,
                              device.refusal,
                              {{"driver", device.driver},
                               {"identifier", device.uuid},
                               {"memory", concat_text(device.memory_bytes >> 20, " MiB")},
                               {"largest binding", concat_text(device.limits.max_range >> 20, " MiB")},
                               {"subgroup size", std::to_string(device.capabilities.subgroup_size)},
                               {"subgroup exchange", yes_no(device.limits.exchanging > 1)},
                               {"half precision", yes_no(device.capabilities.storage16)},
                               {"f16 arithmetic", yes_no(device.capabilities.float16)}}});
    }
    return list;
  }();
  return all;
}

}  // namespace heed
