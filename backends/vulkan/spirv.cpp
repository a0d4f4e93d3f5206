#include "heed/backends/vulkan/spirv.h"

namespace heed::vulkan {
namespace {

constexpr std::uint32_t op_entry_point = 15, op_execution_mode = 16, op_capability = 17;
constexpr std::uint32_t group_non_uniform = 61, storage_buffer_16_bit = 4433;  // capabilities

/// A behaviour as a capability, which a module declares, and as an execution mode of its entry point.
struct Behaviour {
  std::uint32_t capability, mode;
};
constexpr Behaviour denormals_kept{4464, 4459}, special_values_kept{4466, 4461}, nearest_even{4467, 4462};

/// Whether a module declares a capability.
bool declares(std::span<const std::uint32_t> module, std::uint32_t capability) {
  bool found = false;
  for_each_instruction(module, [&](std::size_t, std::uint32_t number, std::span<const std::uint32_t> words) {
    if (number == op_capability && words[1] == capability) found = true;
  });
  return found;
}

}  // namespace

bool uses_16_bit_storage(std::span<const std::uint32_t> module) {
  return declares(module, storage_buffer_16_bit);
}

bool uses_subgroups(std::span<const std::uint32_t> module) {
  return declares(module, group_non_uniform);
}

std::vector<std::uint32_t> with_float_controls(std::span<const std::uint32_t> module,
                                               const FloatControls& controls) {
  std::size_t after_entry_points = 0;
  std::uint32_t entry_point = 0;
  for_each_instruction(module,
                       [&](std::size_t at, std::uint32_t number, std::span<const std::uint32_t> words) {
                         if (number != op_entry_point) return;
                         entry_point = words[2];
                         after_entry_points = at + words.size();
                       });
  check(after_entry_points > 0, "vulkan: a shader module has no entry point");

  std::vector<std::uint32_t> capabilities, modes;
  const auto ask = [&](const Behaviour& behaviour, bool of_16, bool of_32) {
    if (of_16 || of_32)
      capabilities.insert(capabilities.end(), {2u << 16 | op_capability, behaviour.capability});
    for (const auto& [asked, bits] : {std::pair(of_16, 16u), std::pair(of_32, 32u)})
      if (asked) modes.insert(modes.end(), {4u << 16 | op_execution_mode, entry_point, behaviour.mode, bits});
  };
  const bool half = uses_16_bit_storage(module);
  ask(denormals_kept, half && controls.denormals_16, false);
  ask(special_values_kept, half && controls.special_values_16, controls.special_values_32);
  ask(nearest_even, half && controls.nearest_even_16, controls.nearest_even_32);

  std::vector<std::uint32_t> made(module.begin(), module.begin() + header_words);
  const auto append = [&](std::span<const std::uint32_t> words) {
    made.insert(made.end(), words.begin(), words.end());
  };
  append(capabilities);
  append(module.subspan(header_words, after_entry_points - header_words));
  append(modes);
  append(module.subspan(after_entry_points));
  return made;
}

}  // namespace heed::vulkan
