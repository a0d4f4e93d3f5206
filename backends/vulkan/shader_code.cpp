#include "heed/backends/vulkan/shader_code.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace heed::vulkan {
namespace {

constexpr std::uint32_t op_entry_point = 15, op_execution_mode = 16, op_capability = 17;
constexpr std::uint32_t group_non_uniform = 61, storage_buffer_16_bit = 4433;  // capabilities

/// A floating-point behaviour: the capability that a module declares for it, and the execution mode of its
/// entry point.
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

// SPIR-V specification, section 2.12 (specialization) and section 3.49 (instructions).

using Words = std::span<const std::uint32_t>;
using Values = std::map<std::uint32_t, std::uint32_t>;

// Opcodes.
constexpr std::uint32_t type_bool = 20, type_int = 21, constant_true = 41, constant_false = 42, constant = 43,
                        constant_composite = 44, spec_true = 48, spec_false = 49, spec_constant = 50,
                        spec_composite = 51, spec_op = 52, decorate = 71, loop_merge = 246;
constexpr std::uint32_t spec_id = 1;      // a decoration
constexpr std::uint32_t unroll_hint = 1;  // a bit of a loop's control

/// The result of an operation on 32-bit integers and booleans (1 and 0); nullopt if the operation is not
/// handled or its result is undefined.
std::optional<std::uint32_t> worked_out(std::uint32_t operation, std::span<const std::uint32_t> x) {
  constexpr std::uint32_t logical_not = 168, select = 169;
  if (operation == logical_not && x.size() == 1) return x[0] ^ 1u;
  if (operation == select && x.size() == 3) return x[0] != 0 ? x[1] : x[2];
  if (x.size() != 2) return std::nullopt;
  const std::uint32_t a = x[0], b = x[1];
  if (operation == 128) return a + b;                                         // OpIAdd
  if (operation == 130) return a - b;                                         // OpISub
  if (operation == 132) return a * b;                                         // OpIMul
  if (operation == 134) return b == 0 ? std::nullopt : std::optional(a / b);  // OpUDiv
  if (operation == 137) return b == 0 ? std::nullopt : std::optional(a % b);  // OpUMod
  if (operation == 164 || operation == 170) return a == b;                    // OpLogicalEqual, OpIEqual
  if (operation == 165 || operation == 171) return a != b;  // OpLogicalNotEqual, OpINotEqual
  if (operation == 166 || operation == 197) return a | b;   // OpLogicalOr, OpBitwiseOr
  if (operation == 167 || operation == 199) return a & b;   // OpLogicalAnd, OpBitwiseAnd
  if (operation == 172) return a > b;                       // OpUGreaterThan
  if (operation == 174) return a >= b;                      // OpUGreaterThanEqual
  if (operation == 176) return a < b;                       // OpULessThan
  if (operation == 178) return a <= b;                      // OpULessThanEqual
  if (operation == 194) return b > 31 ? std::nullopt : std::optional(a >> b);  // OpShiftRightLogical
  if (operation == 196) return b > 31 ? std::nullopt : std::optional(a << b);  // OpShiftLeftLogical
  return std::nullopt;
}

/// Copies a module, instruction by instruction, and replaces its specialisation constants.
class Specialiser {
 public:
  Specialiser(Words module, const Values& values) : values_(values) {
    made_.assign(module.begin(), module.begin() + header_words);
    for_each_instruction(module,
                         [&](std::size_t, std::uint32_t number, Words words) { take(number, words); });
  }
  std::vector<std::uint32_t> made() && { return std::move(made_); }

 private:
  void take(std::uint32_t number, Words words) {
    if (number == decorate && words[2] == spec_id) {
      numbers_[words[1]] = words[3];
      return;
    }
    if (number == type_bool) bool_type_ = words[1];
    if (number == type_int && words[2] == 32) int_types_.insert(words[1]);
    if (number == constant && int_types_.contains(words[1])) known_[words[2]] = words[3];
    if (number == constant_true || number == constant_false)
      return put(words[1], words[2], number == constant_true ? 1 : 0);
    if (number == spec_true || number == spec_false)
      return put(words[1], words[2], given(words[2]).value_or(number == spec_true ? 1 : 0));
    if (number == spec_constant && words.size() <= 4)  // not of 64 bits
      return put(words[1], words[2], given(words[2]).value_or(words[3]));
    if (number == constant_composite || number == spec_composite) return put_composite(words);
    if (number == spec_op) return put_operation(words);
    keep(words);
  }

  void keep(Words words) { made_.insert(made_.end(), words.begin(), words.end()); }

  /// The value that the launch gives to a constant.
  std::optional<std::uint32_t> given(std::uint32_t id) const {
    const auto number = numbers_.find(id);
    const auto value = number == numbers_.end() ? values_.end() : values_.find(number->second);
    return value == values_.end() ? std::nullopt : std::optional(value->second);
  }

  /// Writes an ordinary constant.
  void put(std::uint32_t type, std::uint32_t id, std::uint32_t value) {
    known_[id] = value;
    if (type == bool_type_) {
      known_[id] = value != 0;
      made_.insert(made_.end(), {3u << 16 | (value != 0 ? constant_true : constant_false), type, id});
    } else {
      made_.insert(made_.end(), {4u << 16 | constant, type, id, value});
    }
  }

  /// Writes a composite constant, as an ordinary one if all its parts are known.
  void put_composite(Words words) {
    const Words parts = words.subspan(3);
    const bool all_known =
        std::ranges::all_of(parts, [&](std::uint32_t part) { return known_.contains(part); });
    if (all_known) composites_[words[2]].assign(parts.begin(), parts.end());
    const std::size_t begin = made_.size();
    keep(words);
    if (all_known) made_[begin] = (made_[begin] & 0xffff0000u) | constant_composite;
  }

  /// Writes the result of an operation as an ordinary constant. An operation that cannot be computed is kept;
  /// its operands are ordinary constants by now.
  void put_operation(Words words) {
    constexpr std::uint32_t extract = 81;
    const std::uint32_t operation = words[3];
    std::optional<std::uint32_t> result;
    if (operation == extract) {
      const auto whole = composites_.find(words[4]);
      if (whole != composites_.end() && words.size() == 6) result = known_.at(whole->second.at(words[5]));
    } else if (words[1] == bool_type_ || int_types_.contains(words[1])) {
      std::vector<std::uint32_t> operands;
      for (const std::uint32_t id : words.subspan(4))
        if (const auto found = known_.find(id); found != known_.end()) operands.push_back(found->second);
      if (operands.size() == words.size() - 4) result = worked_out(operation, operands);
    }
    result ? put(words[1], words[2], *result) : keep(words);
  }

  const Values& values_;
  std::vector<std::uint32_t> made_;
  std::uint32_t bool_type_ = 0;
  std::set<std::uint32_t> int_types_;                               // of 32 bits
  std::map<std::uint32_t, std::uint32_t> numbers_;                  // numbers of specialisation constants
  std::map<std::uint32_t, std::uint32_t> known_;                    // bits of 32-bit constants and booleans
  std::map<std::uint32_t, std::vector<std::uint32_t>> composites_;  // ids of their parts
};

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

std::vector<std::uint32_t> specialised(std::span<const std::uint32_t> module,
                                       const std::map<std::uint32_t, std::uint32_t>& values) {
  return Specialiser(module, values).made();
}

std::vector<std::uint32_t> without_unrolling(std::span<const std::uint32_t> module) {
  std::vector<std::uint32_t> made(module.begin(), module.end());
  for_each_instruction(module, [&](std::size_t at, std::uint32_t number, Words) {
    if (number == loop_merge) made[at + 3] &= ~unroll_hint;
  });
  return made;
}

const ShaderCode* find_shader(std::string_view name) {
  const std::span<const ShaderCode> all = shader_codes();
  const auto found = std::ranges::lower_bound(all, name, {}, &ShaderCode::name);
  return found != all.end() && found->name == name ? &*found : nullptr;
}

const ShaderCode& shader_code(std::string_view name) {
  const ShaderCode* const found = find_shader(name);
  check(found != nullptr, "vulkan: this build has no shader \"", name,
        "\" (the glslang it was built with may lack an extension)");
  return *found;
}

}  // namespace heed::vulkan
