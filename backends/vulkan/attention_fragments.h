#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heed/backends/vulkan/attention_call.h"
#include "heed/backends/vulkan/matmul_tiles.h"

// Attention's products by matrix hardware: shaders/attention_fragments.glsl.

namespace heed::vulkan {

/// The fragments of a device: lanes of a subgroup, and rows of what it adds up at once.
struct FragmentShape {
  std::int64_t lanes = 32, rows = 16;
};

/// How fragments take the forward pass of a call; nothing where they do not: operands in f32, widths below 16, above 128
/// or no multiples of eight, lines or results that begin between multiples of eight elements, fewer than 16 queries
/// (or queries in a block of the pattern), and devices whose workgroups are too small. Masks, biases and dropout
/// make no difference.
std::optional<AttentionGroup> fragment_group(const AttentionCall& call, const AttentionOperand& result,
                                             FragmentShape fragment);

/// The same with the device's fragments, where its matrix hardware is used and has passed the test of this kernel.
std::optional<AttentionGroup> trusted_fragments(const AttentionCall& call, const AttentionOperand& result);

/// Attention's forward pass by one kernel. Throws an Error where fragments do not take the call.
void attention_forward_by(TileKernel kernel, FragmentShape fragment, const AttentionArgs& args,
                          const Tensor& out, const Tensor& log_sum_exp);

/// What tells one pipeline of the kernel for fragments from another, but for its masks.
struct AttentionVariant {
  DType dtype = DType::f16;
  std::int64_t key_width = 64, value_width = 64;
  std::int64_t queries = 64;  ///< of a tile
  FragmentShape fragment;
};

/// How a variant's results differ from those of ordinary arithmetic, where all is exact; empty: not in a single
/// bit. Scores are multiples of a number so large that weights are 0 or 1. `kernel` is the cooperative one, or its emulation
/// for tests.
std::string problem_of_attention(Gpu& gpu, TileKernel kernel, const AttentionVariant& variant);

}  // namespace heed::vulkan
