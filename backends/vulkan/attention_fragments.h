#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "heed/backends/vulkan/attention_call.h"
#include "heed/backends/vulkan/matmul_operands.h"

// Attention's products by matrix hardware: shaders/attention_fragments.glsl.

namespace heed::vulkan {

/// The fragments of a device: lanes of a subgroup, rows of what it adds up at once, how many subgroups a
/// workgroup has at most, and the columns and the depth of a fragment.
struct FragmentShape {
  std::int64_t lanes = 32, rows = 16, subgroups = 4, columns = 16, depth = 16;
};

/// What fragments compute: the result, the gradient of the queries, those of keys and values, or that of the
/// bias.
enum class FragmentPass { forward, dquery, dkey, dbias };

/// How fragments take a pass of a call; nothing where they do not: operands in f32, widths below 16, above
/// 128 or no multiples of eight, lines that begin between multiples of eight elements, fewer than 16 rows
/// (queries, or keys for their gradients; with a pattern, of a block), and devices whose workgroups are too
/// small. Masks, biases and dropout make no difference.
std::optional<AttentionGroup> fragment_group(const AttentionCall& call, FragmentPass pass,
                                             FragmentShape fragment);

/// A kernel for fragments, and how its workgroups take a pass.
struct FragmentKernel {
  TileKernel kernel;  ///< the cooperative one, or its emulation for tests
  AttentionGroup group;
};
/// Chooses the kernel of a pass; nothing: ordinary arithmetic.
using FragmentChoice = std::function<std::optional<FragmentKernel>(const AttentionCall&, FragmentPass)>;

/// The device's fragments, where its matrix hardware is used and has passed the tests of all passes: backward
/// has to see the very scores of forward, and the hardware may round otherwise than ordinary arithmetic.
std::optional<FragmentKernel> trusted_fragments(const AttentionCall& call, FragmentPass pass);
/// Always the same kernel, which throws an Error for what fragments do not take.
FragmentChoice always(TileKernel kernel, FragmentShape fragment);

/// The entries of the kernel contract (core/backend.h), with a choice of kernels.
void attention_forward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                          const Tensor& sums);
void attention_backward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                           const Tensor& sums, const Tensor& grad, const Tensor& log_sum_exp_grad,
                           const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
                           const Tensor& dbias);

/// What tells one pipeline of the kernels for fragments from another, but for its masks.
struct AttentionVariant {
  FragmentPass pass = FragmentPass::forward;
  DType dtype = DType::f16;
  std::int64_t key_width = 64, value_width = 64;
  FragmentShape fragment;
};

/// How a variant's results differ from those of ordinary arithmetic; empty: they do not. `kernel` is the
/// cooperative one, or its emulation for tests.
///
/// The forward pass is given scores that are multiples of a number so large that weights are 0 or 1: all is
/// exact, and must be the same to the last bit. Gradients take real weights, which are rounded to halves:
/// they may differ by a few such roundings of their largest element. Those of keys and values, whose products
/// have their factors the other way round, are made of a forward pass by fragments, too, at logits so large
/// that one bit of a score is another weight.
std::string problem_of_attention(Gpu& gpu, TileKernel kernel, const AttentionVariant& variant);

}  // namespace heed::vulkan
