#include "heed/backends/vulkan/hazards.h"

#include <algorithm>

namespace heed::vulkan {

bool Hazards::conflicts(VkBuffer buffer, std::uint64_t begin, std::uint64_t end, bool written) const {
  return std::ranges::any_of(ranges_, [&](const Range& range) {
    return range.buffer == buffer && range.begin < end && begin < range.end && (written || range.written);
  });
}

void Hazards::add(VkBuffer buffer, std::uint64_t begin, std::uint64_t end, bool written) {
  ranges_.push_back({buffer, begin, end, written});
}

}  // namespace heed::vulkan
