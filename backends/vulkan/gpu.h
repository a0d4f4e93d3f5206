#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "heed/backends/vulkan/api.h"
#include "heed/backends/vulkan/memory.h"
#include "heed/backends/vulkan/physical_devices.h"
#include "heed/backends/vulkan/pipelines.h"
#include "heed/backends/vulkan/stream.h"
#include "heed/backends/vulkan/tuning.h"
#include "heed/core/backend.h"

namespace heed::vulkan {

/// How shaders report bad indices: each launch that may report an error has a word of host-visible memory,
/// set to no_error, where the shader leaves the lowest bad position with atomicMin.
class DeviceErrors {
 public:
  static constexpr std::uint32_t no_error = 0xffffffffu;

  explicit DeviceErrors(Gpu& gpu);
  VkBuffer buffer() const { return words_->buffer(); }
  /// Reserves a word for the launch that is recorded now, and returns its byte offset. `text` is the error's
  /// message.
  std::uint64_t add(std::string text);
  /// The timeline value at which all launches that may report an error are done; 0 if there are none.
  std::uint64_t last() const { return slots_[(next_ + slots - 1) % slots].value; }
  /// Throws an Error with the first error among the launches that the device has finished; frees the words of
  /// all of these.
  void check();

 private:
  static constexpr std::size_t slots = 1024;
  struct Slot {
    std::uint64_t value = 0;  // of the timeline; 0: free
    std::string text;
  };
  std::uint32_t& word(std::size_t slot) const;

  Gpu& gpu_;
  std::uint64_t stride_;  // bytes between words: bindings begin at aligned addresses
  std::unique_ptr<HostBuffer> words_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0, oldest_ = 0;
};

/// An opened Vulkan device: its memory, its pipelines and its one command stream. Opened on first use and
/// kept until the program ends. Every public function of the backend holds `mutex` while it records.
///
/// An opened device is never closed, since tensors in static variables may outlive any order of destruction.
/// When the program ends (main returns, or exit() is called), the host waits for the device and writes its
/// pipeline cache before the driver's own exit handlers run; work recorded after that is refused.
class Gpu {
 public:
  /// `index` is the device's index in physical_devices().
  explicit Gpu(int index);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const DeviceApi& api() const { return api_; }
  const Limits& limits() const { return limits_; }
  /// Lowers limits, which forces splitting: for tests. The device's own limits stay the upper bound.
  void lower_limits(const Limits& limits);
  void restore_limits() { limits_ = chosen_.limits; }
  /// For tests: the driver's functions, which may be replaced.
  DeviceApi& replaceable_api() { return api_; }
  /// For tests: behaves as if the queue wrote no timestamps.
  void forget_timestamps() { chosen_.timestamp_bits = 0; }
  const Capabilities& capabilities() const { return chosen_.capabilities; }
  int index() const { return index_; }
  const std::string& name() const { return chosen_.name; }
  /// The name and version of its driver.
  const std::string& driver() const { return chosen_.driver; }
  /// Names the device and its driver's version in file names.
  const std::string& identity() const { return chosen_.identity; }
  /// What the driver says about its memory, for error messages; "" if it says nothing.
  std::string memory_left() const;
  double flops_per_second() const { return chosen_.flops_per_second; }
  double bytes_per_second() const { return chosen_.bytes_per_second; }
  /// Bytes of the largest device-local heap.
  std::uint64_t memory_bytes() const { return chosen_.memory_bytes; }
  const Tuning& tuning() const { return tuning_; }
  /// For tune() and tests: changes the tuning until the device is opened again.
  void use(const AttentionTuning& attention) { tuning_.attention = attention; }
  std::uint32_t queue_family() const { return chosen_.queue_family; }
  std::uint32_t timestamp_bits() const { return chosen_.timestamp_bits; }
  float timestamp_period() const { return chosen_.timestamp_period; }
  const VkPhysicalDeviceMemoryProperties& memory_properties() const { return memory_properties_; }

  std::recursive_mutex& mutex() { return mutex_; }
  Memory& memory() { return *memory_; }
  Pipelines& pipelines() { return *pipelines_; }
  Stream& stream() { return *stream_; }
  DeviceErrors& device_errors() { return *errors_; }
  Staging& staging() { return *staging_; }
  /// A few bytes for bindings without a tensor.
  VkBuffer placeholder() const { return placeholder_->buffer(); }

 private:
  int index_;
  PhysicalDevice chosen_;
  DeviceApi api_;
  Limits limits_;
  Tuning tuning_;
  VkPhysicalDeviceMemoryProperties memory_properties_{};
  std::recursive_mutex mutex_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceErrors> errors_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<HostBuffer> placeholder_;
};

/// The device at an index of physical_devices(), opened on first use. Throws an Error with the reason if it
/// is unusable, and in a child of fork(), where the driver's threads are missing.
Gpu& gpu(int index);
/// Makes the devices finish, when the program ends, before anything that was set up so far is torn down. The
/// driver sets things up lazily, so this is called after each of its compilations.
void finish_before_exit_handlers();
/// If called on the main thread: makes the devices idle before any exit handler runs, provided that this
/// thread ends the program. A driver may be compiling on a thread of its own, and what its compiler sets up
/// there is torn down first.
void drain_before_exit_handlers();

}  // namespace heed::vulkan
