#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "heed/base/error.h"

// What heed asks of a compiled module, beyond running it.
//
// SPIR-V's binary form: SPIR-V specification, section 2.3. A module is five words and then instructions,
// whose first word holds their length in words and their number.

namespace heed::vulkan {

/// Words before the first instruction of a module.
inline constexpr std::size_t header_words = 5;

/// Calls visit(place, number, words) for every instruction.
template <class Visit>
void for_each_instruction(std::span<const std::uint32_t> module, const Visit& visit) {
  for (std::size_t at = header_words; at < module.size();) {
    const std::size_t length = module[at] >> 16;
    check(length > 0 && at + length <= module.size(), "vulkan: a shader module is damaged at word ", at);
    visit(at, module[at] & 0xffffu, module.subspan(at, length));
    at += length;
  }
}

/// How a device computes where it is asked to (VK_KHR_shader_float_controls, part of Vulkan 1.2), for numbers
/// of 16 and of 32 bits: rounding to nearest, ties to even; signed zeros, infinities and NaN kept; tiny
/// numbers kept.
struct FloatControls {
  bool nearest_even_16 = false, nearest_even_32 = false;
  bool special_values_16 = false, special_values_32 = false;
  bool denormals_16 = false;
};

/// Whether a module uses 16-bit elements in memory.
bool uses_16_bit_storage(std::span<const std::uint32_t> module);

/// Whether a module relies on the size of a subgroup: it multiplies by matrix hardware, or exchanges values.
bool uses_subgroups(std::span<const std::uint32_t> module);

/// The module with the execution modes that ask for them: those of 16 bits where it uses such elements.
std::vector<std::uint32_t> with_float_controls(std::span<const std::uint32_t> module,
                                               const FloatControls& controls);

/// A compute shader as compiled into the library.
struct ShaderCode {
  std::string_view name;
  std::span<const std::uint32_t> words;  ///< SPIR-V
};

/// All modules, sorted by name. The definition is generated from shaders/ by cmake/shaders.cmake.
std::span<const ShaderCode> shader_codes();
/// One of them; null when there is none of that name (left out because glslang lacked an extension).
const ShaderCode* find_shader(std::string_view name);

/// The module with its specialisation constants turned into ordinary ones: those whose numbers are in
/// `values` take them, the others keep their defaults. What follows from constants alone (sizes of arrays,
/// conditions of loops and branches) is worked out too. Drivers could do all that themselves, but some
/// optimise a module before they look at its constants, and compile every line of a table of which one is
/// wanted.
std::vector<std::uint32_t> specialised(std::span<const std::uint32_t> module,
                                       const std::map<std::uint32_t, std::uint32_t>& values);

/// The module without the hints that loops be unrolled.
std::vector<std::uint32_t> without_unrolling(std::span<const std::uint32_t> module);

}  // namespace heed::vulkan
