#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "heed/backends/vulkan/memory.h"

namespace heed::vulkan {

/// Memory through which data goes to and comes from memory that the host does not see.
class Staging {
 public:
  static constexpr std::uint64_t largest_piece = 8u << 20;

  explicit Staging(Gpu& gpu) : gpu_(gpu) {}

  struct Piece {
    VkBuffer buffer;
    std::uint64_t offset;
    std::byte* data;
  };
  /// Room for up to largest_piece bytes that a command recorded next reads. Waits for the device only when it
  /// is many pieces behind.
  Piece for_upload(std::uint64_t bytes);
  /// One of two buffers of largest_piece bytes that the host reads after waiting, by turns.
  HostBuffer& for_download();

 private:
  struct Chunk {
    std::unique_ptr<HostBuffer> buffer;
    std::uint64_t used = 0;
    std::uint64_t value = 0;  // of the timeline: when the host may write again
  };
  static constexpr std::size_t most_chunks = 8;

  Gpu& gpu_;
  std::deque<Chunk> chunks_;  // the last one is being filled; the first is the oldest
  std::unique_ptr<HostBuffer> downloads_[2];
  int next_download_ = 0;
};

}  // namespace heed::vulkan
