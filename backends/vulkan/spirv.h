#pragma once

#include <cstdint>
#include <span>
#include <vector>

// What heed asks of a compiled module, beyond running it.

namespace heed::vulkan {

/// How a device computes where it is asked to (VK_KHR_shader_float_controls, part of Vulkan 1.2), for numbers of 16 and
/// of 32 bits: rounding to nearest, ties to even; signed zeros, infinities and NaN kept; tiny numbers kept.
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

}  // namespace heed::vulkan
