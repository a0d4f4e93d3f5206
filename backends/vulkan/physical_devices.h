#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/backends/vulkan/api.h"
#include "heed/backends/vulkan/shader_code.h"
#include "heed/core/tensor.h"

namespace heed::vulkan {

/// The most bindings of a shader.
inline constexpr std::uint32_t most_bindings = 12;
/// The name of an extension that the headers declare only where unfinished extensions are enabled.
inline constexpr const char* portability_subset_extension = "VK_KHR_portability_subset";

// VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16. Vulkan headers before 1.3.255 and 1.4.311 lack their
// structures, so these are declared here, following the specification.
inline constexpr const char* cooperative_matrix_extension = "VK_KHR_cooperative_matrix";
inline constexpr const char* bfloat16_extension = "VK_KHR_shader_bfloat16";

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

/// The product that a subgroup computes at once: rows x depth by depth x columns, each 8 or 16.
struct Fragment {
  std::uint32_t rows = 0, columns = 0, depth = 0;  ///< 0: no fragments

  bool exists() const { return rows > 0; }
  bool operator==(const Fragment&) const = default;
};

/// The half-precision fragments that a device multiplies into f32: the largest of its list, and
/// among equally large ones the 8 x 16 x 16 (rows, columns, depth).
struct CooperativeMatrices {
  Fragment f16, bf16;
  std::string missing;  ///< why there are no f16 fragments

  const Fragment& of(DType half) const { return half == DType::f16 ? f16 : bf16; }
};
CooperativeMatrices cooperative_matrices(const InstanceApi& api, VkPhysicalDevice device,
                                         const std::vector<VkExtensionProperties>& extensions);

/// The limits that kernels have to respect.
struct Limits {
  std::uint64_t max_range = 0;         ///< bytes of one storage-buffer binding
  std::uint64_t max_allocation = 0;    ///< bytes of one driver allocation
  std::uint32_t max_groups = 0;        ///< workgroups per axis
  std::uint32_t max_invocations = 0;   ///< per workgroup
  std::uint32_t shared_bytes = 0;      ///< per workgroup
  std::uint32_t offset_alignment = 1;  ///< bytes, of a binding's offset
  /// Invocations of a subgroup, if they can exchange values and workgroups of up to 256 can be made
  /// of whole subgroups; else 1.
  std::uint32_t exchanging = 1;
  /// The estimated duration of work that is submitted at once. Drivers abort work that keeps a
  /// device busy for seconds.
  double batch_seconds = 1e9;
};

/// The features of a device beyond the baseline. HEED_VULKAN_DISABLE (names, separated by commas)
/// switches off most of them, so that the other path can be tested.
struct Capabilities {
  bool push_descriptor = false;
  bool storage16 = false;           ///< 16-bit elements in memory, which half precision needs
  bool memory_budget = false;       ///< the driver says how much memory is left
  bool portability_subset = false;  ///< must be enabled where it is offered (MoltenVK)
  bool unified_memory = false;      ///< the host can access device memory
  bool float16 = false;             ///< arithmetic in f16 (storing it needs storage16)
  CooperativeMatrices matrices;     ///< matrix hardware
  std::uint32_t subgroup_size = 1;
  bool subgroup_size_control = false;  ///< a shader may require full subgroups of that size
  FloatControls float_controls;
  bool unrolling = true;  ///< attention's loops are unrolled if a shader requests it
};

/// A device the driver offers, and whether heed can use it.
struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  std::string name;
  std::string kind;      ///< "discrete GPU", "integrated GPU", "virtual GPU", "software", "other"
  std::string driver;    ///< its name and version
  std::string identity;  ///< vendor, device, driver version, pipeline-cache UUID, in hexadecimal
  /// UUID, which its other drivers (CUDA) report too: "00112233-4455-...".
  std::string uuid;
  std::string refusal;  ///< why heed cannot use it; "" if it can
  std::uint32_t queue_family = 0;
  std::uint32_t timestamp_bits = 0;  ///< valid bits of the queue's timestamps; 0: it has none
  float timestamp_period = 0;        ///< nanoseconds
  std::int64_t processors = 0;       ///< as the driver reports; 0: it does not
  std::uint64_t memory_bytes = 0;    ///< of the largest device-local heap
  double flops_per_second = 1, bytes_per_second = 1;  ///< a low guess for devices of its kind
  Limits limits;
  Capabilities capabilities;
};

/// All devices in the driver's order. `problem` says why there are none, such as no loader or no
/// driver.
struct PhysicalDevices {
  std::vector<PhysicalDevice> devices;
  std::string problem;
};

/// Returns the folder for data kept between runs: $HEED_CACHE_DIR, else $XDG_CACHE_HOME/heed, else
/// ~/.cache/heed; "" if none of these is set.
std::filesystem::path cache_folder();

/// Returns what a Vulkan 1.2 device lacks that heed needs; "" if nothing.
std::string missing_from_baseline(const VkPhysicalDeviceLimits& limits,
                                  const VkPhysicalDeviceVulkan12Features& features);

/// The queue family that heed uses on a device, or why there is none.
struct QueueChoice {
  std::optional<std::uint32_t> family;
  std::string problem = {};
};
/// Chooses by the value of HEED_VULKAN_QUEUE. "main" or "": the first family with compute, which
/// usually has graphics too. "compute": the first family with compute but no graphics, whose work
/// runs alongside the display's.
QueueChoice choose_queue_family(std::span<const VkQueueFamilyProperties> families, std::string_view wanted);

/// The bytes of device memory that this process may use in all, and uses, as the driver reports at
/// the moment.
struct MemoryBudget {
  std::uint64_t budget = 0, used = 0;
};
/// Returns the budget of a device with Capabilities::memory_budget.
MemoryBudget memory_budget(VkPhysicalDevice device);

/// Returns all devices. The driver is asked once per process.
const PhysicalDevices& physical_devices();
/// Returns the functions of the instance behind physical_devices(); throws an Error with its
/// `problem`.
const InstanceApi& instance();
/// True in a child made by fork() after the driver was loaded: its threads stayed behind in the
/// parent.
bool is_forked_child();

}  // namespace heed::vulkan
