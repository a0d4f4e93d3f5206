#include "heed/backends/vulkan/physical_devices.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string_view>

#include "heed/backends/vulkan/cooperative_matrix.h"
#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"

namespace heed::vulkan {

namespace {

// --- validation --------------------------------------------------------------------------------------------

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

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value && std::strcmp(value, "0") != 0;
}

/// What one of Vulkan's functions lists: list(count, null) counts, list(count, items) fills in.
template <class Item, class List>
std::vector<Item> listed(const List& list) {
  std::uint32_t count = 0;
  list(&count, static_cast<Item*>(nullptr));
  std::vector<Item> items(count);
  list(&count, items.data());
  return items;
}

bool has_validation_layer(const InstanceApi& api) {
  return std::ranges::any_of(
      listed<VkLayerProperties>(api.EnumerateInstanceLayerProperties),
      [](const VkLayerProperties& layer) { return std::strcmp(layer.layerName, validation_layer) == 0; });
}

bool has_extension(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::ranges::any_of(extensions, [&](const VkExtensionProperties& extension) {
    return std::strcmp(extension.extensionName, name) == 0;
  });
}

// --- the instance ------------------------------------------------------------------------------------------

/// Returns why no instance could be created; "" on success.
std::string create_instance(InstanceApi& api) {
  auto application = structure<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.pEngineName = "heed";
  application.apiVersion = VK_API_VERSION_1_2;
  auto create = structure<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  create.pApplicationInfo = &application;

  auto messenger =
      structure<VkDebugUtilsMessengerCreateInfoEXT>(VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT);
  messenger.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType =
      VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT;
  messenger.pfnUserCallback = collect_message;
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
  load_instance_functions(api);
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

// --- one device --------------------------------------------------------------------------------------------

struct Properties {
  VkPhysicalDeviceProperties2 core =
      structure<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  VkPhysicalDeviceVulkan11Properties v11 =
      structure<VkPhysicalDeviceVulkan11Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES);
  VkPhysicalDeviceVulkan12Properties v12 =
      structure<VkPhysicalDeviceVulkan12Properties>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES);
  // Properties of extensions: 0 if the extension is not offered.
  VkPhysicalDevicePushDescriptorPropertiesKHR push_descriptor =
      structure<VkPhysicalDevicePushDescriptorPropertiesKHR>(
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PUSH_DESCRIPTOR_PROPERTIES_KHR);
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV multiprocessors =
      structure<VkPhysicalDeviceShaderSMBuiltinsPropertiesNV>(
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
  VkPhysicalDeviceShaderCorePropertiesAMD compute_units = structure<VkPhysicalDeviceShaderCorePropertiesAMD>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD);
  VkPhysicalDeviceMaintenance4Properties maintenance4 = structure<VkPhysicalDeviceMaintenance4Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES);
  VkPhysicalDeviceSubgroupSizeControlProperties subgroups =
      structure<VkPhysicalDeviceSubgroupSizeControlProperties>(
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
};
struct Features {
  VkPhysicalDeviceFeatures2 core =
      structure<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2);
  VkPhysicalDeviceVulkan11Features v11 =
      structure<VkPhysicalDeviceVulkan11Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
  VkPhysicalDeviceVulkan12Features v12 =
      structure<VkPhysicalDeviceVulkan12Features>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  VkPhysicalDeviceSubgroupSizeControlFeatures subgroups =  // of an extension
      structure<VkPhysicalDeviceSubgroupSizeControlFeatures>(
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
};

/// The number of processors of NVIDIA's and AMD's GPUs; 0 for others.
std::int64_t processors_of(const Properties& properties) {
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

/// What is wrong with HEED_VULKAN_DISABLE; "" if nothing.
std::string problem_of_disabled() {
  constexpr std::string_view known =
      "push_descriptor, unified_memory, float16, cooperative_matrix, storage16, memory_budget, "
      "float_controls, subgroup_shuffle, unrolling";
  for (const std::string_view name : disabled_capabilities())
    if (concat_text(", ", known, ", ").find(concat_text(", ", name, ", ")) == std::string::npos)
      return concat_text("HEED_VULKAN_DISABLE names \"", name, "\"; it knows ", known);
  return "";
}

/// The value of HEED_VULKAN_QUEUE.
std::string_view wanted_queue() {
  const char* name = std::getenv("HEED_VULKAN_QUEUE");
  return name ? name : "";
}

/// What is wrong with HEED_VULKAN_QUEUE; "" if nothing.
std::string problem_of_queue() {
  const std::string_view name = wanted_queue();
  if (name.empty() || name == "main" || name == "compute") return "";
  return concat_text("HEED_VULKAN_QUEUE is \"", name, "\"; it knows main and compute");
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

Limits limits_of(const Properties& properties) {
  const VkPhysicalDeviceLimits& given = properties.core.properties.limits;
  Limits limits;
  limits.max_range = given.maxStorageBufferRange;
  limits.max_allocation = properties.v11.maxMemoryAllocationSize;
  if (properties.maintenance4.maxBufferSize > 0)
    limits.max_allocation =
        std::min<std::uint64_t>(limits.max_allocation, properties.maintenance4.maxBufferSize);
  limits.max_groups = std::min({given.maxComputeWorkGroupCount[0], given.maxComputeWorkGroupCount[1],
                                given.maxComputeWorkGroupCount[2]});
  limits.max_invocations = std::min(given.maxComputeWorkGroupInvocations, given.maxComputeWorkGroupSize[0]);
  limits.shared_bytes = given.maxComputeSharedMemorySize;
  limits.offset_alignment =
      std::max<std::uint32_t>(16, static_cast<std::uint32_t>(given.minStorageBufferOffsetAlignment));
  return limits;
}

std::string identity_of(const VkPhysicalDeviceProperties& core) {
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
FloatControls float_controls_of(const VkPhysicalDeviceVulkan12Properties& given) {
  const bool rounding = given.roundingModeIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE,
             denormals = given.denormBehaviorIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
  return {.nearest_even_16 = rounding && given.shaderRoundingModeRTEFloat16,
          .nearest_even_32 = rounding && given.shaderRoundingModeRTEFloat32,
          .special_values_16 = given.shaderSignedZeroInfNanPreserveFloat16 == VK_TRUE,
          .special_values_32 = given.shaderSignedZeroInfNanPreserveFloat32 == VK_TRUE,
          .denormals_16 = denormals && given.shaderDenormPreserveFloat16};
}

/// Sets the speed of a slow device of this kind, so that no batch of commands meets a watchdog; those of
/// operating systems strike after two seconds or more. A software device has no watchdog.
void guess_speed(PhysicalDevice& device) {
  const bool discrete = device.kind == "discrete GPU";
  device.flops_per_second = discrete ? 1e12 : 1e11;
  device.bytes_per_second = discrete ? 5e10 : 1e10;
  if (device.kind != "software") device.limits.batch_seconds = 0.5;
}

std::uint64_t largest_local_heap(const InstanceApi& api, PhysicalDevice& device) {
  VkPhysicalDeviceMemoryProperties memory;
  api.GetPhysicalDeviceMemoryProperties(device.handle, &memory);
  std::uint64_t largest = 0;
  for (std::uint32_t i = 0; i < memory.memoryHeapCount; ++i)
    if (memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
      largest = std::max<std::uint64_t>(largest, memory.memoryHeaps[i].size);
  return largest;
}

/// What the driver says about a device of Vulkan 1.2. Its structures point at each other.
struct Answers {
  std::vector<VkExtensionProperties> extensions;
  Properties properties;
  Features features;

  Answers() = default;
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
};

void ask(const InstanceApi& api, VkPhysicalDevice handle, Answers& answers) {
  Properties& properties = answers.properties;
  Features& features = answers.features;
  answers.extensions = listed<VkExtensionProperties>([&](auto* count, auto* items) {
    api.EnumerateDeviceExtensionProperties(handle, nullptr, count, items);
  });
  properties.core.pNext = &properties.v11;
  properties.v11.pNext = &properties.v12;
  void** last = &properties.v12.pNext;
  const auto ask_for = [&](auto& more, const char* extension) {
    if (!has_extension(answers.extensions, extension)) return false;
    *last = &more;
    last = &more.pNext;
    return true;
  };
  ask_for(properties.push_descriptor, VK_KHR_PUSH_DESCRIPTOR_EXTENSION_NAME);
  ask_for(properties.multiprocessors, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME);
  ask_for(properties.compute_units, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME);
  ask_for(properties.maintenance4, VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
  const bool sizes_subgroups = ask_for(properties.subgroups, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  api.GetPhysicalDeviceProperties2(handle, &properties.core);
  features.core.pNext = &features.v11;
  features.v11.pNext = &features.v12;
  if (sizes_subgroups) features.v12.pNext = &features.subgroups;
  api.GetPhysicalDeviceFeatures2(handle, &features.core);
}

/// All but the matrix hardware.
Capabilities capabilities_of(const Answers& answers) {
  const auto& [extensions, properties, features] = answers;
  const VkPhysicalDeviceType kind = properties.core.properties.deviceType;
  Capabilities can;
  can.push_descriptor =
      properties.push_descriptor.maxPushDescriptors >= most_bindings && !is_disabled("push_descriptor");
  can.storage16 = features.v11.storageBuffer16BitAccess && !is_disabled("storage16");
  can.memory_budget =
      has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) && !is_disabled("memory_budget");
  can.portability_subset = has_extension(extensions, portability_subset_extension);
  if (!is_disabled("float_controls")) can.float_controls = float_controls_of(properties.v12);
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

void take_matrix_hardware(const CooperativeMatrices& offered, Capabilities& can) {
  const bool forbidden = is_disabled("cooperative_matrix");
  can.fragment = forbidden ? Fragment() : offered.f16;
  can.bfloat16_fragment = forbidden ? Fragment() : offered.bf16;
  can.cooperative_matrix = can.fragment.rows > 0;
  can.cooperative_bfloat16 = can.bfloat16_fragment.rows > 0;
  can.no_cooperative_matrix = forbidden ? "HEED_VULKAN_DISABLE names it" : offered.missing;
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

PhysicalDevice describe(const InstanceApi& api, VkPhysicalDevice handle) {
  PhysicalDevice device;
  device.handle = handle;
  Answers answers;
  const Properties& properties = answers.properties;
  const VkPhysicalDeviceProperties& core = properties.core.properties;
  api.GetPhysicalDeviceProperties2(handle, &answers.properties.core);
  device.name = core.deviceName;
  device.kind = kind_of(core.deviceType);
  device.api_version = core.apiVersion;
  if (core.apiVersion < VK_API_VERSION_1_2) {
    device.refusal = "its driver offers Vulkan " + version_text(core.apiVersion) + "; heed needs 1.2";
    return device;
  }
  ask(api, handle, answers);
  device.timestamp_period = core.limits.timestampPeriod;
  device.driver = concat_text(properties.v12.driverName, " ", properties.v12.driverInfo);
  device.identity = identity_of(core);
  device.uuid = uuid_text(properties.v11.deviceUUID);
  device.limits = limits_of(properties);
  device.memory_bytes = largest_local_heap(api, device);
  device.processors = processors_of(properties);
  guess_speed(device);
  device.refusal = missing_from_baseline(core.limits, answers.features.v12);
  take_queue_family(api, device);
  device.capabilities = capabilities_of(answers);
  take_matrix_hardware(cooperative_matrices(api, handle, answers.extensions), device.capabilities);
  if (exchange_values(properties, device.capabilities))
    device.limits.exchanging = device.capabilities.subgroup_size;
  return device;
}

struct Driver {
  InstanceApi api;
  PhysicalDevices found;
};

std::atomic<bool> forked{false};

Driver* ask_driver() {
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  auto* driver = new Driver;  // kept until the program ends: drivers cope badly with being unloaded at exit
  driver->found.problem = problem_of_disabled();
  if (driver->found.problem.empty()) driver->found.problem = problem_of_queue();
  if (driver->found.problem.empty()) driver->found.problem = open_loader(driver->api);
  if (driver->found.problem.empty()) driver->found.problem = create_instance(driver->api);
  if (!driver->found.problem.empty()) return driver;
  std::uint32_t count = 0;
  VkResult result = driver->api.EnumeratePhysicalDevices(driver->api.instance, &count, nullptr);
  std::vector<VkPhysicalDevice> handles(count);
  if (result == VK_SUCCESS)
    result = driver->api.EnumeratePhysicalDevices(driver->api.instance, &count, handles.data());
  if (result != VK_SUCCESS)
    driver->found.problem = "vkEnumeratePhysicalDevices failed: " + name_of(result);
  else if (count == 0)
    driver->found.problem = "the installed Vulkan drivers find no device";
  else
    for (const VkPhysicalDevice handle : handles)
      driver->found.devices.push_back(describe(driver->api, handle));
  return driver;
}

const Driver& driver() {
  static const Driver* const asked = ask_driver();
  return *asked;
}

}  // namespace

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

bool forked_from_driver() {
  return forked.load(std::memory_order_relaxed);
}

std::vector<std::string> validation_messages() {
  const std::lock_guard lock(messages().mutex);
  return messages().texts;
}

void clear_validation_messages() {
  const std::lock_guard lock(messages().mutex);
  messages().texts.clear();
}

}  // namespace heed::vulkan
