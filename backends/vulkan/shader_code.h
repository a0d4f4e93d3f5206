#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "heed/base/error.h"

// Reads and changes compiled modules before a driver gets them.
//
// SPIR-V's binary form: SPIR-V specification, section 2.3. A module is five words followed by instructions;
// the first word of an instruction holds its length in words and its number.

namespace heed::vulkan {

/// Words before the first instruction of a module.
inline constexpr std::size_t header_words = 5;

/// Calls visit(place, number, words) for every instruction: the index of its first word, its number
/// (opcode) and all its words.
template <class Visit>
void for_each_instruction(std::span<const std::uint32_t> module, const Visit& visit) {
  for (std::size_t at = header_words; at < module.size();) {
    const std::size_t length = module[at] >> 16;
    check(length > 0 && at + length <= module.size(), "vulkan: a shader module is damaged at word ", at);
    visit(at, module[at] & 0xffffu, module.subspan(at, length));
    at += length;
  }
}

/// The guarantees of a device on request (VK_KHR_shader_float_controls, part of Vulkan 1.2), for
/// numbers of 16 and of 32 bits: rounding to nearest, ties to even; signed zeros, infinities and
/// NaN kept; denormals kept.
struct FloatControls {
  bool nearest_even_16 = false, nearest_even_32 = false;
  bool special_values_16 = false, special_values_32 = false;
  bool denormals_16 = false;
};

/// Returns whether a module uses 16-bit elements in memory.
bool uses_16_bit_storage(std::span<const std::uint32_t> module);

/// Returns whether a module relies on the size of a subgroup: it uses matrix hardware or exchanges
/// values.
bool uses_subgroups(std::span<const std::uint32_t> module);

/// Returns the module with the execution modes that request these controls, those of 16 bits only
/// if it uses such elements.
std::vector<std::uint32_t> with_float_controls(std::span<const std::uint32_t> module,
                                               const FloatControls& controls);

/// A compute shader as compiled into the library.
struct ShaderCode {
  std::string_view name;
  std::span<const std::uint32_t> words;  ///< SPIR-V
};

/// Returns all modules, sorted by name. The definition is generated from shaders/ by
/// cmake/shaders.cmake.
std::span<const ShaderCode> shader_codes();
/// Returns the module of that name; null if there is none (it may have been left out because
/// glslang lacked an extension).
const ShaderCode* find_shader(std::string_view name);
/// Returns the module of that name; throws an Error if there is none.
const ShaderCode& shader_code(std::string_view name);

/// Returns the module with its specialisation constants turned into ordinary ones: those whose
/// numbers are in `values` take these values, the others keep their defaults. Everything that
/// follows from constants alone (array sizes, conditions of loops and branches) is computed too.
/// Drivers could do this themselves, but some optimise a module before they look at its constants,
/// and then compile all lines of a table although only one is used.
std::vector<std::uint32_t> specialised(std::span<const std::uint32_t> module,
                                       const std::map<std::uint32_t, std::uint32_t>& values);

/// Returns the module without its hints to unroll loops.
std::vector<std::uint32_t> without_unrolling(std::span<const std::uint32_t> module);

}  // namespace heed::vulkan
