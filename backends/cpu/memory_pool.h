#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "heed/core/backend.h"

namespace heed::cpu {

/// How many bytes of addresses this process may use (ulimit -v); nothing where there is no limit.
std::optional<std::size_t> address_limit();

/// How many it uses; 0 where the system does not say.
std::size_t addresses_used();

/// The caching allocator of host tensors. Fresh pages cost ten times what reused ones do, so memory
/// is kept and reused.
///
/// Small blocks come from size classes. Large blocks are cut from a few big address ranges, best fit, and
/// merge with their free neighbours: a training step that asks for the same blocks in the same order stays
/// within its peak. Pages beyond the furthest block ever handed out are never touched, and so take no memory.
class MemoryPool {
 public:
  struct Block {
    std::byte* address = nullptr;
    std::size_t capacity = 0;  ///< at least the bytes asked for
  };

  /// 64-byte aligned, not initialised. Throws OutOfMemory with the pool's figures when memory is exhausted.
  Block allocate(std::size_t bytes);
  /// Never throws: destructors call it. What it needs to note a free block was set aside by allocate().
  void release(Block block) noexcept;
  MemoryStats stats() const;
  void reset_peak();
  /// Gives the pages of free blocks back to the system.
  void trim();
  /// Around fork(), so that the child does not inherit a pool that another thread was changing.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  /// An address range from the system; [base, base + used) has been handed out at some time.
  struct Segment {
    std::byte* base = nullptr;
    std::size_t size = 0;
    std::size_t used = 0;
  };
  /// A free block and how many of its bytes (at most) still hold pages.
  struct Free {
    std::size_t size = 0;
    std::size_t resident = 0;
  };
  using FreeMap = std::map<std::byte*, Free>;
  using FreeSet = std::set<std::pair<std::size_t, std::byte*>>;

  Block allocate_small(std::size_t size_class);
  Block allocate_large(std::size_t bytes);
  Block take(FreeMap::iterator free, std::size_t bytes);
  Block extend(std::size_t bytes);
  void add_segment(std::size_t bytes);
  /// Makes nodes for one more large block.
  void set_nodes_aside();
  void insert_free(std::byte* address, Free free) noexcept;
  void erase_free(FreeMap::iterator free) noexcept;
  void release_large(Block block) noexcept;
  /// Gives pages of free blocks back, the largest first, until at least `bytes` are returned.
  void drop_pages(std::size_t bytes);
  [[noreturn]] void exhausted(std::size_t bytes) const;
  bool starts_segment(const std::byte* address) const;

  mutable std::mutex mutex_;
  std::vector<Segment> segments_;
  FreeMap free_by_address_;
  FreeSet free_by_size_;
  // Nodes for the large blocks in use, which join the two containers when those are released.
  std::vector<FreeMap::node_type> address_nodes_;
  std::vector<FreeSet::node_type> size_nodes_;
  std::size_t nodes_ = 0;                               // all there are, here and in the containers
  std::size_t large_blocks_ = 0;                        // in use
  std::array<std::vector<std::byte*>, 32> small_free_;  // each with room for all blocks of its class
  std::array<std::size_t, 32> small_blocks_{};          // how many there are, free or in use
  std::size_t current_ = 0, peak_ = 0, highest_ = 0;  // highest_: the peak that reset_peak() does not forget
  std::size_t reserved_ = 0;
};

}  // namespace heed::cpu
