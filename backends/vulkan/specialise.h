#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace heed::vulkan {

/// The module with its specialisation constants turned into ordinary ones: those whose numbers are in `values` take
/// them, the others keep their defaults. What follows from constants alone (sizes of arrays, conditions of loops and branches) is worked
/// out too. Drivers could do all that themselves, but some optimise a module before they look at its constants, and
/// compile every line of a table of which one is wanted.
std::vector<std::uint32_t> specialised(std::span<const std::uint32_t> module,
                                       const std::map<std::uint32_t, std::uint32_t>& values);

/// The module without the hints that loops be unrolled.
std::vector<std::uint32_t> without_unrolling(std::span<const std::uint32_t> module);

}  // namespace heed::vulkan
