#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heed/backends/vulkan/open_device.h"
#include "heed/backends/vulkan/stream.h"
#include "heed/core/backend.h"

namespace heed::vulkan {

class Memory;

/// A buffer with its own memory.
struct Allocation {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  std::byte* data = nullptr;  // null: not mapped
};

/// A buffer that is mapped at data(), for transfers and error words.
class HostBuffer {
 public:
  HostBuffer(OpenDevice& device, std::uint64_t bytes, bool cached);
  ~HostBuffer();
  HostBuffer& operator=(HostBuffer&&) = delete;
  VkBuffer buffer() const { return made_.buffer; }
  std::byte* data() const { return made_.data; }

 private:
  OpenDevice& device_;
  Allocation made_;
};

struct Slab;

struct FreeRange {
  std::uint64_t bytes = 0;
  std::uint64_t last_use = 0;  // timeline value
};
/// The free ranges of a slab by offset; neighbours are merged.
using FreeRanges = std::map<std::uint64_t, FreeRange>;
struct Place {
  Slab* slab = nullptr;
  std::uint64_t offset = 0;
};
/// The free ranges of all slabs by size.
using FreeSizes = std::multimap<std::uint64_t, Place>;

/// The storage of a tensor: a range of a slab.
///
/// Freed memory is handed out again at once, since its next use is recorded later in the same
/// stream. The timeline values say when the host may access it.
class Block final : public Storage {
 public:
  Block(Memory& memory, Device device, std::size_t bytes)
      : Storage(device, bytes, nullptr), memory_(memory) {}
  ~Block() override;
  VkBuffer buffer() const;
  std::byte* mapped() const;  ///< its host address; null if it is not mapped
  std::uint64_t offset() const { return offset_; }
  /// Returns the offset after its guard bytes; 0 if it has none.
  std::uint64_t end_of_guards() const;
  std::uint64_t last_use() const { return last_use_; }      ///< timeline value of its last use
  std::uint64_t last_write() const { return last_write_; }  ///< ... that wrote it
  void used(std::uint64_t value, bool written) {
    last_use_ = value;
    if (written) last_write_ = value;
  }

 private:
  friend class Memory;
  Memory& memory_;
  Slab* slab_ = nullptr;
  std::uint64_t offset_ = 0;  // of the first byte a tensor may use
  std::uint64_t room_ = 0;    // bytes taken from the slab, guards included
  std::uint64_t last_use_ = 0, last_write_ = 0;
  // The nodes of the free range that the block was taken from. They return to their containers, so that
  // freeing allocates nothing.
  FreeRanges::node_type range_node_;
  FreeSizes::node_type size_node_;
};

/// Device memory, taken from the driver in slabs and handed out best fit.
///
/// With HEED_VULKAN_GUARDS=1 every block lies between guard bytes, which are NaN in any floating
/// type and are checked when the block is freed (this waits for the device). Bindings extend over
/// the guard bytes behind a block. Tests find accesses out of bounds this way: the validation
/// layers do not see them, and the software device drops those beyond the end of a binding. Unless
/// the host writes into device memory itself (unified_memory), the blocks are filled with NaN as
/// well.
class Memory {
 public:
  Memory(OpenDevice& device, Stream& stream);
  ~Memory();

  std::shared_ptr<Block> allocate(Device device, std::size_t bytes);
  MemoryStats stats() const { return stats_; }
  void reset_peak() { stats_.peak_bytes = stats_.current_bytes; }
  /// Returns empty slabs to the driver. Waits for the device.
  void trim();
  /// Describes how much memory is held and how fragmented it is, for the message of OutOfMemory.
  std::string report() const;
  /// A few bytes for bindings without a tensor.
  static constexpr std::uint64_t placeholder_bytes = 256;
  VkBuffer placeholder() const { return placeholder_.buffer(); }
  /// Returns how often guard bytes were found changed.
  std::int64_t damaged_guards() const { return damaged_guards_; }

 private:
  friend class Block;

  void free(Block& block) noexcept;
  Slab* add_slab(std::uint64_t at_least);
  Slab* try_slab(std::uint64_t bytes);
  void add_free(Slab& slab, std::uint64_t offset, const FreeRange& range);
  FreeSizes::iterator size_entry(Slab& slab, FreeRanges::iterator range);
  void remove_free(Slab& slab, FreeRanges::iterator range);
  void write_guards(const Block& block);
  void check_guards(const Block& block) noexcept;

  OpenDevice& device_;
  Stream& stream_;
  HostBuffer placeholder_;
  std::list<Slab> slabs_;
  FreeSizes free_by_size_;
  MemoryStats stats_;
  std::uint64_t next_slab_bytes_;
  std::uint64_t guard_bytes_ = 0;
  std::unique_ptr<HostBuffer> guards_seen_;  // guard bytes that were read back
  std::int64_t damaged_guards_ = 0;
};

/// Host-visible memory through which data passes to and from memory that the host cannot access.
class Staging {
 public:
  static constexpr std::uint64_t largest_piece = 8u << 20;

  Staging(OpenDevice& device, Stream& stream) : device_(device), stream_(stream) {}

  struct Piece {
    VkBuffer buffer;
    std::uint64_t offset;
    std::byte* data;
  };
  /// Returns room for up to largest_piece bytes, to be read by the command that is recorded next.
  /// Waits for the device only if it is many pieces behind.
  Piece for_upload(std::uint64_t bytes);
  /// Returns one of two buffers of largest_piece bytes, in turn, which the host reads after
  /// waiting.
  HostBuffer& for_download();

 private:
  struct Chunk {
    std::unique_ptr<HostBuffer> buffer;
    std::uint64_t used = 0;
    std::uint64_t value = 0;  // of the timeline: when the host may write again
  };
  static constexpr std::size_t most_chunks = 8;

  OpenDevice& device_;
  Stream& stream_;
  std::deque<Chunk> chunks_;  // the last one is being filled; the first is the oldest
  std::unique_ptr<HostBuffer> downloads_[2];
  int next_download_ = 0;
};

}  // namespace heed::vulkan
