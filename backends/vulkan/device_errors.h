#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heed/backends/vulkan/memory.h"

namespace heed::vulkan {

/// How shaders report bad indices: each launch that may report an error has a word of memory that the host sees, set
/// to no_error, into which the shader puts the lowest bad position by atomicMin.
class DeviceErrors {
 public:
  static constexpr std::uint32_t no_error = 0xffffffffu;

  explicit DeviceErrors(Gpu& gpu);
  VkBuffer buffer() const { return words_->buffer(); }
  /// The byte offset of the word for a launch recorded now.
  std::uint64_t add(std::string text);
  /// The value of the timeline at which all launches that may report an error are done; 0: there are none.
  std::uint64_t last() const { return slots_[(next_ + slots - 1) % slots].value; }
  /// Throws an Error with the first error of what the device has finished; forgets all of that.
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

}  // namespace heed::vulkan
