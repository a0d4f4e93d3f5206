#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {

enum class DeviceType { cpu, vulkan };

/// A place where tensors live and ops run: the CPU, or the index-th Vulkan device.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend auto operator<=>(const Device&, const Device&) = default;
};

/// "cpu" or "vulkan:N".
std::string name_of(Device device);
inline std::ostream& operator<<(std::ostream& out, Device device) {
  return out << name_of(device);
}

/// A Vulkan device that was found, usable or not.
struct DeviceInfo {
  Device device;
  std::string name;     ///< as reported by the driver
  std::string kind;     ///< "discrete GPU", "integrated GPU", "virtual GPU", "software" or "other"
  std::string refusal;  ///< why heed cannot use it; empty when it can
  std::vector<std::pair<std::string, std::string>> facts;  ///< further properties to print
};

struct VulkanDevices {
  std::vector<DeviceInfo> devices;
  std::string problem;  ///< why the list is empty: built without Vulkan, no loader, no driver
};

/// The devices that the Vulkan loader finds; queried once per process.
const VulkanDevices& vulkan_devices();

/// Describes for which types a usable Vulkan device's matrix hardware is used, and why not for the
/// others. The first call opens and tests the device.
std::string matrix_hardware_use(Device device);

/// Times different tile sizes of matrix products on a Vulkan device, saves the results in a file
/// and returns its path. Every program that opens the device reads this file and picks the fastest
/// tiles, so the last bits of products may differ from before. Takes some seconds. Throws an Error
/// for the CPU.
std::filesystem::path tune_device(Device device);

/// Identifies everything that the last bits of a Vulkan device's results depend on: its name, its
/// driver, and the digest of its tuning, if any.
std::string device_platform(Device device);

/// Work submitted to a Vulkan device since it was opened.
struct DeviceCounters {
  std::int64_t dispatches = 0;
  std::int64_t barriers = 0;
  std::int64_t submissions = 0;
  std::int64_t waits = 0;  ///< how often the host waited for the device
};
/// Returns the counters of a device. Throws an Error for the CPU, which has none.
DeviceCounters device_counters(Device device);

/// Waits until a device has finished all its work, and throws the errors that it found, such as an
/// index out of range. Without it, a program that reads no results afterwards would never see them.
void synchronize(Device device);

/// Finds the device for a user's choice:
///
///   "cpu"
///   "vulkan:N"     by index
///   "vulkan:NAME"  the first whose name contains NAME (case-insensitive)
///   "vulkan"       the first usable discrete GPU, or else an integrated or virtual one
///   "auto"         as "vulkan"; the CPU if there is none
///   ""             the environment variable HEED_DEVICE, or "cpu" when it is not set
///
/// Software devices are chosen only by index or name. Throws an Error that lists the devices found
/// and why each was refused.
///
/// When `places` processes on one machine each want a GPU, "vulkan" and "auto" give process number
/// `place` the GPU at that position among those that can be chosen without a name. Throws an Error
/// when there are too few.
Device find_device(std::string_view choice, int place = 0, int places = 1);

/// The processor and the settings that CPU kernels run with. Checkpoints record them, because the
/// bits of a result depend on them.
struct CpuInfo {
  int threads = 0;          ///< threads of the pool
  int processors = 0;       ///< processors this process may run on
  std::string simd_target;  ///< the instruction set of the kernels: "AVX2", "AVX3", ...
  /// True: heed multiplies f32 itself; false: OpenBLAS (HEED_PRODUCTS=openblas).
  bool own_products;
};

/// Returns the current CpuInfo. Cheap: loads no library.
CpuInfo cpu_info();
/// Returns the name of the kernels that OpenBLAS chose for this processor, such as "Haswell" or
/// "Cooperlake". Loads OpenBLAS on first use; throws an Error when the library is not installed.
std::string blas_core_name();

/// Sets the number of threads of the CPU backend; results never depend on it. The default is the
/// number of processors this process may run on. Throws an Error unless 1 <= count <= 1000. Must
/// not be called from inside a kernel.
void set_cpu_threads(int count);
int cpu_threads();

/// Memory use of a device's pool.
struct MemoryStats {
  std::size_t current_bytes = 0;   ///< in use by tensors
  std::size_t peak_bytes = 0;      ///< the most that was in use since the last reset
  std::size_t reserved_bytes = 0;  ///< obtained from the system, in use or cached
};

MemoryStats memory_stats(Device device = {});
/// Resets the peak to the current use.
void reset_peak_memory(Device device = {});

}  // namespace heed
