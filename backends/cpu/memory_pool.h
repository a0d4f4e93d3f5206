#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heed/core/backend.h"

namespace heed::cpu {

/// Returns how many bytes of address space this process may use (ulimit -v); nullopt: no limit.
std::optional<std::size_t> address_limit();

/// Returns how many bytes of address space it uses; 0 if the system does not report it.
std::size_t addresses_used();

/// Describes both for error messages.
std::string address_space();

/// The caching allocator for host tensors. Fresh pages cost ten times as much as reused ones, so
/// memory is kept and reused.
///
/// Small blocks come from size classes. Large blocks are cut from a few big address ranges, best
/// fit, and merge with their free neighbours: a training step that allocates the same blocks in the
/// same order stays within its peak. Pages beyond the furthest block ever handed out are never
/// touched and so use no memory.
class MemoryPool {
 public:
  struct Block {
    std::byte* address = nullptr;
    std::size_t capacity = 0;  ///< at least the bytes requested
  };

  /// Returns a block, 64-byte aligned and not initialised. Throws OutOfMemory with the pool's
  /// figures if memory is exhausted.
  Block allocate(std::size_t bytes);
  /// Takes a block back. Never throws, since destructors call it: allocate() has reserved the nodes
  /// to record a free block.
  void release(Block block) noexcept;
  MemoryStats stats() const;
  void reset_peak();
  /// Returns the pages of free blocks to the system.
  void trim();
  /// Locks the pool around fork(), so that the child does not inherit a pool that another thread is
  /// changing.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  /// An address range from the system; [base, base + used) has been handed out before.
  struct Segment {
    std::byte* base = nullptr;
    std::size_t size = 0;
    std::size_t used = 0;
  };
  /// A free block and an upper bound on how many of its bytes still hold pages.
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
  /// Reserves map and set nodes for one more large block.
  void reserve_nodes();
  void insert_free(std::byte* address, Free free) noexcept;
  void erase_free(FreeMap::iterator free) noexcept;
  void release_large(Block block) noexcept;
  /// Returns pages of free blocks to the system, largest first, until at least `bytes` are
  /// returned.
  void drop_pages(std::size_t bytes);
  [[noreturn]] void exhausted(std::size_t bytes) const;
  bool starts_segment(const std::byte* address) const;

  mutable std::mutex mutex_;
  std::vector<Segment> segments_;
  FreeMap free_by_address_;
  FreeSet free_by_size_;
  // Nodes for the large blocks in use; they join the two containers when the blocks are released.
  std::vector<FreeMap::node_type> address_nodes_;
  std::vector<FreeSet::node_type> size_nodes_;
  std::size_t nodes_ = 0;                               // total, here and in the containers
  std::size_t large_blocks_ = 0;                        // in use
  std::array<std::vector<std::byte*>, 32> small_free_;  // each has capacity for all blocks of its class
  std::array<std::size_t, 32> small_blocks_{};          // number of blocks, free or in use
  // highest_: the all-time peak, which reset_peak() keeps
  std::size_t current_ = 0, peak_ = 0, highest_ = 0;
  std::size_t reserved_ = 0;
};

}  // namespace heed::cpu
