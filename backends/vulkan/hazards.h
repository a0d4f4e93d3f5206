#pragma once

#include <cstdint>
#include <vector>

#include "heed/backends/vulkan/api.h"

namespace heed::vulkan {

/// Remembers which ranges of memory were touched since the last barrier, and says when a command needs one:
/// when it reads what was written, or writes what was read or written.
class Hazards {
 public:
  /// Whether an access conflicts with one since the last barrier.
  bool conflicts(VkBuffer buffer, std::uint64_t begin, std::uint64_t end, bool written) const;
  void add(VkBuffer buffer, std::uint64_t begin, std::uint64_t end, bool written);
  /// After a barrier.
  void clear() { ranges_.clear(); }
  /// A long list costs more to search than a barrier does.
  bool is_long() const { return ranges_.size() > 128; }

 private:
  struct Range {
    VkBuffer buffer;
    std::uint64_t begin, end;
    bool written;
  };
  std::vector<Range> ranges_;
};

}  // namespace heed::vulkan
