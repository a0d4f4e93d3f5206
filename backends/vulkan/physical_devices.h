#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/backends/vulkan/api.h"
#include "heed/backends/vulkan/cooperative_matrix.h"
#include "heed/backends/vulkan/shader_code.h"

namespace heed::vulkan {

/// Bindings of a shader, at most.
inline constexpr std::uint32_t most_bindings = 12;
/// Headers declare it only for those who ask for unfinished extensions.
inline constexpr const char* portability_subset_extension = "VK_KHR_portability_subset";

/// What kernels have to respect.
struct Limits {
  std::uint64_t max_range = 0;         ///< bytes of one storage-buffer binding
  std::uint64_t max_allocation = 0;    ///< bytes of one driver allocation
  std::uint32_t max_groups = 0;        ///< workgroups per axis
  std::uint32_t max_invocations = 0;   ///< per workgroup
  std::uint32_t shared_bytes = 0;      ///< per workgroup
  std::uint32_t offset_alignment = 1;  ///< bytes, of a binding's offset
  /// Invocations of a subgroup, where they exchange values and workgroups of up to 256 may be made of whole
  /// ones; 1: none.
  std::uint32_t exchanging = 1;
  /// Of what is submitted at once, as estimated: drivers end what keeps a device busy for seconds.
  double batch_seconds = 1e9;
};

/// What a device has beyond the baseline. Each can be switched off by name in HEED_VULKAN_DISABLE (comma
/// separated), so that the other path is testable.
struct Capabilities {
  bool push_descriptor = false;
  bool storage16 = false;                ///< 16-bit elements in memory, which half precision needs
  bool memory_budget = false;            ///< the driver says how much memory is left
  bool portability_subset = false;       ///< has to be switched on where it is offered (MoltenVK)
  bool unified_memory = false;           ///< device memory that the host sees
  bool float16 = false;                  ///< arithmetic in f16 (storing it takes storage16)
  bool cooperative_matrix = false;       ///< fragments of f16 with sums in f32 (matrix hardware)
  bool cooperative_bfloat16 = false;     ///< the same of bf16
  std::string no_cooperative_matrix;     ///< why there are none
  Fragment fragment, bfloat16_fragment;  ///< what these are
  std::uint32_t subgroup_size = 1;
  bool subgroup_size_control = false;  ///< a shader may ask for full subgroups of that size
  FloatControls float_controls;
  bool unrolling = true;  ///< attention's loops are unrolled, as its shaders ask
};

/// A device the driver offers, and whether heed can use it.
struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  std::string name;
  std::string kind;      ///< "discrete GPU", "integrated GPU", "virtual GPU", "software", "other"
  std::string driver;    ///< its name and version
  std::string identity;  ///< vendor, device, driver version and driver id, in hexadecimal
  std::string uuid;      ///< of the device, the same for other drivers of it (CUDA's): "00112233-4455-..."
  std::string refusal;   ///< why heed cannot use it; empty: it can
  std::uint32_t api_version = 0;
  std::uint32_t queue_family = 0;
  std::uint32_t timestamp_bits = 0;  ///< how many of a timestamp the queue writes; 0: it has none
  float timestamp_period = 0;        ///< nanoseconds
  std::int64_t processors = 0;       ///< as its driver says; 0: it does not
  std::uint64_t memory_bytes = 0;    ///< of the largest device-local heap
  double flops_per_second = 1, bytes_per_second = 1;  ///< a low guess for devices of its kind
  Limits limits;
  Capabilities capabilities;
};

/// All devices in the driver's order. `problem` is why there are none: no loader, no driver.
struct PhysicalDevices {
  std::vector<PhysicalDevice> devices;
  std::string problem;
};

/// What heed needs and a device of version 1.2 lacks; empty: nothing.
std::string missing_from_baseline(const VkPhysicalDeviceLimits& limits,
                                  const VkPhysicalDeviceVulkan12Features& features);

/// The family of a device's queues that heed takes, or why it has none.
struct QueueChoice {
  std::optional<std::uint32_t> family;
  std::string problem = {};
};
/// By the value of HEED_VULKAN_QUEUE: "main" (or nothing), the first family that computes, which mostly draws
/// too; "compute", the first that computes and does not draw, whose work runs beside that of the screen.
QueueChoice choose_queue_family(std::span<const VkQueueFamilyProperties> families, std::string_view wanted);

/// Bytes of device memory that this process may have in all, and has, as the driver says now.
struct MemoryBudget {
  std::uint64_t budget = 0, used = 0;
};
/// For a device with Capabilities::memory_budget.
MemoryBudget memory_budget(VkPhysicalDevice device);

/// Asks the driver once per process.
const PhysicalDevices& physical_devices();
/// The functions of the instance behind physical_devices(); throws an Error with its `problem`.
const InstanceApi& instance();
/// True in a child made by fork() after the driver was loaded: its threads stayed behind in the parent.
bool forked_from_driver();

/// Messages of the validation layers so far (HEED_VULKAN_VALIDATION=1 asks for the layers; an Error at the
/// first use of Vulkan where they are not installed).
std::vector<std::string> validation_messages();
/// Forgets them.
void clear_validation_messages();

}  // namespace heed::vulkan
