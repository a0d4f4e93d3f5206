#include "heed/backends/vulkan/physical_devices.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"

namespace heed::vulkan {
namespace {

// --- matrix hardware ---------------------------------------------------------------------------------------

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

std::vector<FragmentProperties> read_fragments(const InstanceApi& api, VkPhysicalDevice device) {
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

// --- one device --------------------------------------------------------------------------------------------

struct Properties {
  VkPhysicalDeviceProperties2 core{};
  VkPhysicalDeviceVulkan11Properties v11{};
  VkPhysicalDeviceVulkan12Properties v12{};
  // Of extensions: 0 if the extension is not offered.
  VkPhysicalDevicePushDescriptorPropertiesKHR push_descriptor{};
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV multiprocessors{};
  VkPhysicalDeviceShaderCorePropertiesAMD compute_units{};
  VkPhysicalDeviceMaintenance4Properties maintenance4{};
  VkPhysicalDeviceSubgroupSizeControlProperties subgroups{};
};
struct Features {
  VkPhysicalDeviceFeatures2 core{};
  VkPhysicalDeviceVulkan11Features v11{};
  VkPhysicalDeviceVulkan12Features v12{};
  VkPhysicalDeviceSubgroupSizeControlFeatures subgroups{};  // of an extension
};

/// The driver's answers about a device of Vulkan 1.2.
struct Answers {
  std::vector<VkExtensionProperties> extensions;
  Properties properties;
  Features features;
};

/// A chain of structures for the driver to fill in. They must stay where they are until it has.
class Chain {
 public:
  template <class First>
  Chain(First& first, VkStructureType type) : last_(&first.pNext) {
    first.sType = type;
  }
  template <class Next>
  void add(Next& next, VkStructureType type) {
    next.sType = type;
    *last_ = &next;
    last_ = &next.pNext;
  }

 private:
  void** last_;
};

void ask(const InstanceApi& api, VkPhysicalDevice handle, Answers& answers) {
  auto& [extensions, properties, features] = answers;
  extensions = listed<VkExtensionProperties>([&](auto* count, auto* items) {
    api.EnumerateDeviceExtensionProperties(handle, nullptr, count, items);
  });
  const auto offers = [&](const char* extension) { return has_extension(extensions, extension); };
  Chain asked(properties.core, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  asked.add(properties.v11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES);
  asked.add(properties.v12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES);
  if (offers(VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME))
    asked.add(properties.push_descriptor, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PUSH_DESCRIPTOR_PROPERTIES_KHR);
  if (offers(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME))
    asked.add(properties.multiprocessors, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
  if (offers(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME))
    asked.add(properties.compute_units, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD);
  if (offers(VK_KHR_MAINTENANCE_4_EXTENSION_NAME))
    asked.add(properties.maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES);
  Chain of_features(features.core, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  of_features.add(features.v11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  of_features.add(features.v12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  if (offers(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) {
    asked.add(properties.subgroups, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
    of_features.add(features.subgroups, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
  }
  api.GetPhysicalDeviceProperties2(handle, &properties.core);
  api.GetPhysicalDeviceFeatures2(handle, &features.core);
}

/// The number of processors of NVIDIA's and AMD's GPUs; 0 for others.
std::int64_t count_processors(const Properties& properties) {
  const VkPhysicalDeviceShaderCorePropertiesAMD& amd = properties.compute_units;
  return std::int64_t{properties.multiprocessors.shaderSMCount} + std::int64_t{amd.shaderEngineCount} *
                                                                      amd.shaderArraysPerEngineCount *
                                                                      amd.computeUnitsPerShaderArray;
}

std::string kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return "discrete GPU";
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return "integrated GPU";
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return "virtual GPU";
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return "software";
    default:
      return "other";
  }
}

std::string version_text(std::uint32_t version) {
  return concat_text(VK_API_VERSION_MAJOR(version), '.', VK_API_VERSION_MINOR(version), '.',
                     VK_API_VERSION_PATCH(version));
}

/// The names in HEED_VULKAN_DISABLE.
std::vector<std::string_view> disabled_capabilities() {
  std::vector<std::string_view> names;
  const char* list = std::getenv("HEED_VULKAN_DISABLE");
  for (std::string_view rest = list ? list : ""; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    names.push_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return names;
}

bool is_disabled(std::string_view capability) {
  const std::vector<std::string_view> names = disabled_capabilities();
  return std::ranges::find(names, capability) != names.end();
}

/// Returns what is wrong with HEED_VULKAN_DISABLE; "" if nothing.
std::string problem_of_disabled() {
  constexpr std::string_view known =
      "push_descriptor, unified_memory, float16, cooperative_matrix, storage16, memory_budget, "
      "float_controls, subgroup_shuffle, unrolling";
  for (const std::string_view name : disabled_capabilities())
    if (concat_text(", ", known, ", ").find(concat_text(", ", name, ", ")) == std::string::npos)
      return concat_text("HEED_VULKAN_DISABLE names \"", name, "\"; the known names are ", known);
  return "";
}

/// The value of HEED_VULKAN_QUEUE.
std::string_view wanted_queue() {
  const char* name = std::getenv("HEED_VULKAN_QUEUE");
  return name ? name : "";
}

/// Returns what is wrong with HEED_VULKAN_QUEUE; "" if nothing.
std::string problem_of_queue() {
  const std::string_view name = wanted_queue();
  if (name.empty() || name == "main" || name == "compute") return "";
  return concat_text("HEED_VULKAN_QUEUE is \"", name, "\"; it must be main or compute");
}

/// Chooses a queue family, or sets the reason why the device is refused.
void take_queue_family(const InstanceApi& api, PhysicalDevice& device) {
  const auto families = listed<VkQueueFamilyProperties>([&](auto* count, auto* items) {
    api.GetPhysicalDeviceQueueFamilyProperties(device.handle, count, items);
  });
  const QueueChoice choice = choose_queue_family(families, wanted_queue());
  if (!choice.family) {
    device.refusal = choice.problem;
    return;
  }
  device.queue_family = *choice.family;
  device.timestamp_bits = families[device.queue_family].timestampValidBits;
}

/// Whether invocations of a subgroup can exchange values: see Limits::exchanging.
bool exchange_values(const Properties& properties, const Capabilities& can) {
  const VkPhysicalDeviceVulkan11Properties& subgroups = properties.v11;
  return can.subgroup_size_control && std::has_single_bit(can.subgroup_size) &&
         (subgroups.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
         (subgroups.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0 &&
         256 <= can.subgroup_size * std::uint64_t{properties.subgroups.maxComputeWorkgroupSubgroups} &&
         !is_disabled("subgroup_shuffle");
}

Limits read_limits(const Properties& properties, const Capabilities& can) {
  const VkPhysicalDeviceLimits& given = properties.core.properties.limits;
  Limits limits;
  limits.max_range = given.maxStorageBufferRange;
  limits.max_allocation = properties.v11.maxMemoryAllocationSize;
  if (properties.maintenance4.maxBufferSize > 0)
    limits.max_allocation =
        std::min<std::uint64_t>(limits.max_allocation, properties.maintenance4.maxBufferSize);
  limits.max_groups = *std::ranges::min_element(given.maxComputeWorkGroupCount);
  limits.max_invocations = std::min(given.maxComputeWorkGroupInvocations, given.maxComputeWorkGroupSize[0]);
  limits.shared_bytes = given.maxComputeSharedMemorySize;
  limits.offset_alignment =
      std::max<std::uint32_t>(16, static_cast<std::uint32_t>(given.minStorageBufferOffsetAlignment));
  if (exchange_values(properties, can)) limits.exchanging = can.subgroup_size;
  return limits;
}

std::string device_identity(const VkPhysicalDeviceProperties& core) {
  PlainStream text;
  text << std::hex << core.vendorID << '-' << core.deviceID << '-' << core.driverVersion << '-';
  for (const std::uint8_t byte : core.pipelineCacheUUID) text << (byte >> 4) << (byte & 15);
  return text.str();
}

std::string uuid_text(const std::uint8_t (&bytes)[VK_UUID_SIZE]) {
  std::string text;
  for (std::size_t i = 0; i < VK_UUID_SIZE; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    for (const int digit : {bytes[i] >> 4, bytes[i] & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

/// The controls that a device offers, as far as they can be set for each width on its own.
FloatControls read_float_controls(const VkPhysicalDeviceVulkan12Properties& given) {
  const bool rounding = given.roundingModeIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE,
             denormals = given.denormBehaviorIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
  return {.nearest_even_16 = rounding && given.shaderRoundingModeRTEFloat16,
          .nearest_even_32 = rounding && given.shaderRoundingModeRTEFloat32,
          .special_values_16 = given.shaderSignedZeroInfNanPreserveFloat16 == VK_TRUE,
          .special_values_32 = given.shaderSignedZeroInfNanPreserveFloat32 == VK_TRUE,
          .denormals_16 = denormals && given.shaderDenormPreserveFloat16};
}

/// Assumes the speed of a slow device of this kind, so that no batch of commands meets an operating
/// system's watchdog, which ends work after two seconds or more. A software device has no watchdog.
void guess_speed(PhysicalDevice& device) {
  const bool discrete = device.kind == "discrete GPU";
  device.flops_per_second = discrete ? 1e12 : 1e11;
  device.bytes_per_second = discrete ? 5e10 : 1e10;
  if (device.kind != "software") device.limits.batch_seconds = 0.5;
}

std::uint64_t largest_local_heap(const InstanceApi& api, VkPhysicalDevice device) {
  VkPhysicalDeviceMemoryProperties memory;
  api.GetPhysicalDeviceMemoryProperties(device, &memory);
  std::uint64_t largest = 0;
  for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
      largest = std::max<std::uint64_t>(largest, memory.memoryHeaps[i].size);
  return largest;
}

CooperativeMatrices read_matrices(const InstanceApi& api, VkPhysicalDevice handle,
                                  const std::vector<VkExtensionProperties>& extensions) {
  if (!is_disabled("cooperative_matrix")) return cooperative_matrices(api, handle, extensions);
  CooperativeMatrices none;
  none.missing = "HEED_VULKAN_DISABLE names it";
  return none;
}

/// All but the matrix hardware.
Capabilities find_capabilities(const Answers& answers) {
  const auto& [extensions, properties, features] = answers;
  const VkPhysicalDeviceType kind = properties.core.properties.deviceType;
  Capabilities can;
  can.push_descriptor =
      properties.push_descriptor.maxPushDescriptors >= most_bindings && !is_disabled("push_descriptor");
  can.storage16 = features.v11.storageBuffer16BitAccess && !is_disabled("storage16");
  can.memory_budget =
      has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) && !is_disabled("memory_budget");
  can.portability_subset = has_extension(extensions, portability_subset_extension);
  if (!is_disabled("float_controls")) can.float_controls = read_float_controls(properties.v12);
  can.unified_memory =
      (kind == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU || kind == VK_PHYSICAL_DEVICE_TYPE_CPU) &&
      !is_disabled("unified_memory");
  // SwiftShader's optimiser takes twice as long for each further condition of an unrolled loop.
  can.unrolling = properties.v12.driverID != VK_DRIVER_ID_GOOGLE_SWIFTSHADER && !is_disabled("unrolling");
  can.float16 = features.v12.shaderFloat16 && !is_disabled("float16");
  can.subgroup_size = properties.v11.subgroupSize;
  can.subgroup_size_control =
      features.subgroups.subgroupSizeControl && features.subgroups.computeFullSubgroups &&
      (properties.subgroups.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
  return can;
}

PhysicalDevice describe(const InstanceApi& api, VkPhysicalDevice handle) {
  PhysicalDevice device;
  device.handle = handle;
  Answers answers;
  const Properties& properties = answers.properties;
  const VkPhysicalDeviceProperties& core = properties.core.properties;
  answers.properties.core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  api.GetPhysicalDeviceProperties2(handle, &answers.properties.core);
  device.name = core.deviceName;
  device.kind = kind_of(core.deviceType);
  if (core.apiVersion < VK_API_VERSION_1_2) {
    device.refusal = "its driver offers Vulkan " + version_text(core.apiVersion) + "; heed needs 1.2";
    return device;
  }
  ask(api, handle, answers);
  device.timestamp_period = core.limits.timestampPeriod;
  device.driver = concat_text(properties.v12.driverName, " ", properties.v12.driverInfo);
  device.identity = device_identity(core);
  device.uuid = uuid_text(properties.v11.deviceUUID);
  device.memory_bytes = largest_local_heap(api, handle);
  device.processors = count_processors(properties);
  device.capabilities = find_capabilities(answers);
  device.capabilities.matrices = read_matrices(api, handle, answers.extensions);
  device.limits = read_limits(properties, device.capabilities);
  guess_speed(device);
  device.refusal = missing_from_baseline(core.limits, answers.features.v12);
  take_queue_family(api, device);
  return device;
}

struct Driver {
  InstanceApi api;
  PhysicalDevices found;
};

std::atomic<bool> forked{false};

/// Returns why there are no devices; "" if there are.
std::string find_devices(Driver& driver) {
  InstanceApi& api = driver.api;
  if (std::string problem = problem_of_disabled(); !problem.empty()) return problem;
  if (std::string problem = problem_of_queue(); !problem.empty()) return problem;
  if (std::string problem = open_loader(api); !problem.empty()) return problem;
  if (std::string problem = create_instance(api); !problem.empty()) return problem;
  VkResult result = VK_SUCCESS;
  const auto handles = listed<VkPhysicalDevice>([&](std::uint32_t* count, VkPhysicalDevice* items) {
    if (result == VK_SUCCESS) result = api.EnumeratePhysicalDevices(api.instance, count, items);
  });
  if (result != VK_SUCCESS) return "vkEnumeratePhysicalDevices failed: " + name_of(result);
  if (handles.empty()) return "the installed Vulkan drivers find no device";
  for (const VkPhysicalDevice handle : handles) driver.found.devices.push_back(describe(api, handle));
  return "";
}

Driver* ask_driver() {
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  auto* driver = new Driver;  // leaked on purpose: some drivers crash on unload
  driver->found.problem = find_devices(*driver);
  return driver;
}

const Driver& driver() {
  static const Driver* const asked = ask_driver();
  return *asked;
}

}  // namespace

CooperativeMatrices cooperative_matrices(const InstanceApi& api, VkPhysicalDevice device,
                                         const std::vector<VkExtensionProperties>& extensions) {
  CooperativeMatrices found;
  if (!has_extension(extensions, cooperative_matrix_extension)) {
    found.missing = "the driver has no VK_KHR_cooperative_matrix";
    return found;
  }
  auto v12 =
      structure<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  CooperativeMatrixFeatures cooperative;
  cooperative.pNext = &v12;
  Bfloat16Features bfloat16;
  bfloat16.pNext = &cooperative;
  const bool asks_bfloat16 = has_extension(extensions, bfloat16_extension);
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
  const std::vector<FragmentProperties> fragments = read_fragments(api, device);
  found.f16 = best_of(fragments, float16_component);
  if (asks_bfloat16 && bfloat16.shaderBFloat16Type && bfloat16.shaderBFloat16CooperativeMatrix)
    found.bf16 = best_of(fragments, bfloat16_component);
  if (!found.f16.exists())
    found.missing = "it has no fragments of 8 or 16 rows, columns and depth with sums in f32";
  return found;
}

QueueChoice choose_queue_family(std::span<const VkQueueFamilyProperties> families, std::string_view wanted) {
  for (std::uint32_t i = 0; i < families.size(); ++i) {
    const VkQueueFlags flags = families[i].queueFlags;
    const bool draws = (flags & VK_QUEUE_GRAPHICS_BIT) != 0;
    if ((flags & VK_QUEUE_COMPUTE_BIT) != 0 && (wanted != "compute" || !draws)) return {i};
  }
  return {std::nullopt, wanted == "compute"
                            ? "it has no queue that computes and does not draw, as HEED_VULKAN_QUEUE asks for"
                            : "it has no queue that computes"};
}

std::filesystem::path cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value ? value : "");
  };
  if (const auto folder = variable("HEED_CACHE_DIR"); !folder.empty()) return folder;
  if (const auto folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder / "heed";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "heed";
  return {};
}

std::string missing_from_baseline(const VkPhysicalDeviceLimits& limits,
                                  const VkPhysicalDeviceVulkan12Features& features) {
  if (!features.timelineSemaphore) return "it has no timeline semaphores";
  if (limits.maxPerStageDescriptorStorageBuffers < most_bindings)
    return concat_text("its shaders bind ", limits.maxPerStageDescriptorStorageBuffers,
                       " storage buffers at once, fewer than ", most_bindings);
  if (limits.maxComputeSharedMemorySize < 32768)
    return concat_text("it has ", limits.maxComputeSharedMemorySize,
                       " bytes of shared memory, fewer than 32768");
  if (limits.maxComputeWorkGroupInvocations < 256)
    return concat_text("its workgroups hold ", limits.maxComputeWorkGroupInvocations,
                       " invocations, fewer than 256");
  return "";
}

MemoryBudget memory_budget(VkPhysicalDevice device) {
  auto budget = structure<VkPhysicalDeviceMemoryBudgetPropertiesEXT>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
  auto memory = structure<VkPhysicalDeviceMemoryProperties2>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, &budget);
  instance().GetPhysicalDeviceMemoryProperties2(device, &memory);
  MemoryBudget sum;
  const VkPhysicalDeviceMemoryProperties& heaps = memory.memoryProperties;
  for (std::uint32_t i = 0; i < heaps.memoryHeapCount; ++i) {
    if (!(heaps.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)) continue;
    sum.budget += budget.heapBudget[i];
    sum.used += budget.heapUsage[i];
  }
  return sum;
}

const PhysicalDevices& physical_devices() {
  return driver().found;
}

const InstanceApi& instance() {
  check(physical_devices().problem.empty(), "no Vulkan device: ", physical_devices().problem);
  return driver().api;
}

bool is_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

}  // namespace heed::vulkan
