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
  std::string name;     ///< as the driver calls it
  std::string kind;     ///< "discrete GPU", "integrated GPU", "virtual GPU", "software" or "other"
  std::string refusal;  ///< why heed cannot use it; empty: it can
  std::vector<std::pair<std::string, std::string>> facts;  ///< what else is worth printing, by name
};

struct VulkanDevices {
  std::vector<DeviceInfo> devices;
  std::string problem;  ///< why there are none: built without Vulkan, no loader, no driver
};

/// What the Vulkan loader finds; asks it once per process.
const VulkanDevices& vulkan_devices();

/// What the matrix hardware of a usable Vulkan device is used for, and why not for the rest. Opens the device
/// and tests it at the first call.
std::string matrix_hardware_use(Device device);

/// Times the tiles of products on a Vulkan device and keeps what they reach in a file, which every program
/// reads when it opens the device: its products are then cut as is fastest on it, so that their last bits may
/// differ from before. Takes some seconds. Returns the file. Throws an Error for the CPU.
std::filesystem::path tune_device(Device device);

/// What decides the last bits of a Vulkan device's results: its name, its driver, and the digest of its
/// tuning, if any.
std::string device_platform(Device device);

/// What a Vulkan device was given to do since it was opened.
struct DeviceCounters {
  std::int64_t dispatches = 0;
  std::int64_t barriers = 0;
  std::int64_t submissions = 0;
  std::int64_t waits = 0;  ///< how often the host waited for the device to reach a value
};
/// Throws an Error for the CPU, which counts nothing.
DeviceCounters device_counters(Device device);

/// Waits until a device has done all that it was given, and throws what it has found wrong with it, such as
/// an index out of range: a program that reads nothing afterwards would end without being told.
void synchronize(Device device);

/// The device a user names: "cpu"; "vulkan:N", by index; "vulkan:NAME", the first whose name contains NAME
/// (any case); "vulkan", the first usable discrete, else integrated or virtual GPU; "auto", the same, else
/// the CPU. A software device must be named. The empty string stands for the environment variable
/// HEED_DEVICE, or "cpu" without it. Throws an Error that lists what was found and why each was refused.
///
/// Of several processes on this machine that want a GPU each, "vulkan" and "auto" give number `place` of
/// `places` the GPU of that place among those that need not be named; an Error when there are too few.
Device find_device(std::string_view choice, int place = 0, int places = 1);

/// What the CPU kernels run on; recorded in checkpoints, because the bits of a result depend on it.
struct CpuInfo {
  int threads = 0;          ///< threads of the pool
  int processors = 0;       ///< processors this process may run on
  std::string simd_target;  ///< the instruction set of the elementwise kernels: "AVX2", "AVX3", ...
};

/// Cheap: loads nothing.
CpuInfo cpu_info();
/// The kernels OpenBLAS chose for this processor, such as "Haswell" or "Cooperlake". Loads OpenBLAS on first
/// use; throws an Error when the library is not installed.
std::string blas_core_name();

/// How many threads the CPU backend uses. Results never depend on it. The default is the number of processors
/// this process may run on. Throws an Error unless 1 <= count <= 1000. Not to be called from inside a kernel.
void set_cpu_threads(int count);
int cpu_threads();

/// Bytes handed out by a device's memory pool.
struct MemoryStats {
  std::size_t current_bytes = 0;   ///< in use by tensors
  std::size_t peak_bytes = 0;      ///< the most that was in use since the last reset
  std::size_t reserved_bytes = 0;  ///< held from the system, in use or cached
};

MemoryStats memory_stats(Device device = {});
/// Forgets the peak: what is in use now is the most there was.
void reset_peak_memory(Device device = {});

}  // namespace heed
