#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "heed/backends/vulkan/api.h"
#include "heed/backends/vulkan/physical_devices.h"
#include "heed/backends/vulkan/tuning.h"

namespace heed::vulkan {

/// An opened Vulkan device: the driver's functions for it, and its properties. Gpu adds memory,
/// pipelines and a command stream. Every public function of the backend holds `mutex` while it
/// records.
class OpenDevice {
 public:
  /// `index` is the device's index in physical_devices().
  explicit OpenDevice(int index);
  virtual ~OpenDevice() = default;
  OpenDevice& operator=(OpenDevice&&) = delete;

  const DeviceApi& api() const { return api_; }
  const Limits& limits() const { return limits_; }
  /// Lowers limits, which forces splitting: for tests. The device's own limits stay the upper
  /// bound.
  void lower_limits(const Limits& limits);
  void restore_limits() { limits_ = chosen_.limits; }
  /// For tests: the driver's functions, which may be replaced.
  DeviceApi& replaceable_api() { return api_; }
  /// For tests: behaves as if the queue wrote no timestamps.
  void forget_timestamps() { chosen_.timestamp_bits = 0; }
  const Capabilities& capabilities() const { return chosen_.capabilities; }
  int index() const { return index_; }
  /// Returns the driver's description of it; its limits may have been lowered since.
  const PhysicalDevice& described() const { return chosen_; }
  const std::string& name() const { return chosen_.name; }
  /// Returns the driver's report on its memory, for error messages; "" if there is none.
  std::string memory_left() const;
  const Tuning& tuning() const { return tuning_; }
  /// For tune_device() and tests: changes the tuning until the device is opened again.
  void use(const AttentionTuning& attention) { tuning_.attention = attention; }
  const VkPhysicalDeviceMemoryProperties& memory_properties() const { return memory_properties_; }
  std::recursive_mutex& mutex() { return mutex_; }

  /// Adds the device's measurements to the profile.
  virtual void collect_times() = 0;
  /// Waits until the driver is idle.
  virtual void drain() noexcept = 0;
  /// Waits until the driver is idle, refuses all further work, and saves what the next run can use.
  virtual void finish() noexcept = 0;

 protected:
  /// Makes profiles and the end of the program call the functions above from now on, with `mutex`
  /// held.
  void enlist();

 private:
  int index_;
  PhysicalDevice chosen_;
  DeviceApi api_;
  Limits limits_;
  Tuning tuning_;
  VkPhysicalDeviceMemoryProperties memory_properties_{};
  std::recursive_mutex mutex_;
};

/// Makes the devices finish when the program ends, before anything set up so far is torn down. The
/// driver sets things up lazily, so this is called after each of its compilations.
void finish_before_exit_handlers();
/// Makes the devices idle before any exit handler runs, if called on the main thread and this
/// thread ends the program. A driver may be compiling on a thread of its own, and what its compiler
/// sets up there is torn down first.
void drain_before_exit_handlers();

}  // namespace heed::vulkan
