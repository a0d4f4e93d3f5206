#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heed/backends/vulkan/api.h"
#include "heed/backends/vulkan/memory.h"
#include "heed/backends/vulkan/open_device.h"
#include "heed/backends/vulkan/pipelines.h"
#include "heed/backends/vulkan/stream.h"
#include "heed/core/backend.h"

namespace heed::vulkan {

class Gpu;

/// The words in which shaders report bad indices. Each launch that may report an error has a word
/// of host-visible memory, set to no_error, where the shader leaves the lowest bad position with
/// atomicMin.
class DeviceErrors {
 public:
  static constexpr std::uint32_t no_error = 0xffffffffu;

  explicit DeviceErrors(Gpu& gpu);
  VkBuffer buffer() const { return words_->buffer(); }
  /// Reserves a word for the launch that is recorded now, and returns its byte offset. `text` is
  /// the error's message.
  std::uint64_t add(std::string text);
  /// Returns the timeline value at which all launches that may report an error are done; 0 if there
  /// are none.
  std::uint64_t last() const { return slots_[(next_ + slots - 1) % slots].value; }
  /// Throws an Error with the first error among the launches that the device has finished, and
  /// frees the words of all of these.
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

/// An opened Vulkan device with its memory, its pipelines and its one command stream. Opened on
/// first use and kept until the program ends.
///
/// An opened device is never closed, since tensors in static variables may outlive any order of
/// destruction. When the program ends (main returns, or exit() is called), the host waits for the
/// device and writes its pipeline cache before the driver's own exit handlers run; work recorded
/// after that is refused.
class Gpu final : public OpenDevice {
 public:
  /// `index` is the device's index in physical_devices().
  explicit Gpu(int index) : OpenDevice(index) { enlist(); }

  Memory& memory() { return memory_; }
  Pipelines& pipelines() { return pipelines_; }
  Stream& stream() { return stream_; }
  DeviceErrors& device_errors() { return errors_; }
  Staging& staging() { return staging_; }

  void collect_times() override { stream_.collect_times(); }
  void drain() noexcept override { stream_.drain(); }
  void finish() noexcept override {
    stream_.finish();
    pipelines_.save();
  }

 private:
  Pipelines pipelines_{*this};
  Stream stream_{*this};
  Memory memory_{*this, stream_};
  Staging staging_{*this, stream_};
  DeviceErrors errors_{*this};
};

/// Returns the device at an index of physical_devices(), opened on first use. Throws an Error with
/// the reason if it is unusable, and in a child of fork(), where the driver's threads are missing.
Gpu& gpu(int index);

/// Returns the device that holds a tensor.
inline Gpu& gpu_of(const Tensor& tensor) {
  return gpu(tensor.device().index);
}

}  // namespace heed::vulkan
