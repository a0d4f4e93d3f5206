#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "heed/backends/vulkan/api.h"
#include "heed/backends/vulkan/complaints.h"
#include "heed/backends/vulkan/memory.h"
#include "heed/backends/vulkan/physical_devices.h"
#include "heed/backends/vulkan/pipelines.h"
#include "heed/backends/vulkan/staging.h"
#include "heed/backends/vulkan/stream.h"
#include "heed/core/backend.h"

namespace heed::vulkan {

/// An opened Vulkan device: its memory, its pipelines and its one command stream. Opened on first use and
/// kept until the program ends. Every public function of the backend holds `mutex` while it records.
class Gpu {
 public:
  /// `index` is the device's in physical_devices().
  explicit Gpu(int index);

  const DeviceApi& api() const { return api_; }
  const Limits& limits() const { return limits_; }
  /// Lowers limits, which forces splitting: for tests. The device's own limits stay the upper bound.
  void lower_limits(const Limits& limits);
  void restore_limits() { limits_ = chosen_.limits; }
  /// For tests: the functions of the driver, one of which may be replaced by another.
  DeviceApi& replaceable_api() { return api_; }
  const Capabilities& capabilities() const { return chosen_.capabilities; }
  int index() const { return index_; }
  const std::string& name() const { return chosen_.name; }
  /// Names the device and its driver's version in file names.
  const std::string& identity() const { return chosen_.identity; }
  std::uint32_t queue_family() const { return chosen_.queue_family; }
  const VkPhysicalDeviceMemoryProperties& memory_properties() const { return memory_properties_; }

  std::recursive_mutex& mutex() { return mutex_; }
  Memory& memory() { return *memory_; }
  Pipelines& pipelines() { return *pipelines_; }
  Stream& stream() { return *stream_; }
  Complaints& complaints() { return *complaints_; }
  Staging& staging() { return *staging_; }
  /// A few bytes for bindings without a tensor.
  VkBuffer placeholder() const { return placeholder_->buffer(); }

 private:
  int index_;
  PhysicalDevice chosen_;
  DeviceApi api_;
  Limits limits_;
  VkPhysicalDeviceMemoryProperties memory_properties_{};
  std::recursive_mutex mutex_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Complaints> complaints_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<HostBuffer> placeholder_;
};

/// The opened device of an index of list_physical_devices(). Throws an Error with the reason
/// when it is unusable.
Gpu& gpu(int index);

}  // namespace heed::vulkan
