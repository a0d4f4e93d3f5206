#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "heed/backends/vulkan/attention_call.h"
#include "heed/backends/vulkan/matmul_operands.h"

// Attention on matrix hardware (shaders/attention_fragments.comp) or by ordinary arithmetic
// (shaders/attention_products.comp).

namespace heed::vulkan {

/// A device's fragments: the lanes of a subgroup, the rows of a fragment, the most subgroups of a workgroup,
/// and the columns and depth of a fragment.
struct FragmentShape {
  std::int64_t lanes = 32, rows = 16, subgroups = 4, columns = 16, depth = 16;
};

/// What fragments compute: the result, the gradient of the queries, those of keys and values, or that of the
/// bias.
enum class FragmentPass { forward, dquery, dkey, dbias };

/// How fragments compute a pass of a call, or nullopt if they cannot: operands in f32; widths below 16, above
/// 128 or not multiples of eight; lines that do not begin at multiples of eight elements; fewer than 16 rows
/// (queries, or keys for their gradients; with a pattern, rows of a block); a device whose workgroups are too
/// small. Masks, biases and dropout make no difference.
std::optional<AttentionGroup> fragment_group(const AttentionCall& call, FragmentPass pass,
                                             FragmentShape fragment);

/// A fragment kernel, and how its workgroups compute a pass.
struct FragmentKernel {
  TileKernel kernel;  ///< the cooperative one, or its emulation for tests
  AttentionGroup group;
};
/// Chooses the fragment kernel of a pass; nullopt means ordinary arithmetic.
using FragmentChoice = std::function<std::optional<FragmentKernel>(const AttentionCall&, FragmentPass)>;

/// Always chooses this kernel; throws an Error for a call that fragments cannot compute.
FragmentChoice always(TileKernel kernel, FragmentShape fragment);

/// The entries of the kernel contract (core/kernels.def), with a choice of kernels.
void attention_forward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                          const Tensor& sums);
void attention_backward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                           const Tensor& sums, const Tensor& grad, const Tensor& log_sum_exp_grad,
                           const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
                           const Tensor& dbias);

/// What distinguishes the pipelines of the fragment kernels, apart from their masks.
struct PassVariant {
  FragmentPass pass = FragmentPass::forward;
  DType dtype = DType::f16;
  std::int64_t key_width = 64, value_width = 64;
  FragmentShape fragment;
};

/// How a variant's results differ from those of ordinary arithmetic; "" if they agree. `kernel` is the
/// cooperative one, or its emulation for tests.
///
/// The forward pass gets scores that are multiples of a number so large that weights are 0 or 1 before they
/// are divided by their sum: everything is exact, and the results must agree to the last bit. The gradients
/// get real weights, which are rounded to half precision: they may differ by a few such roundings of their
/// largest element. Those of keys and values, whose products swap their factors, are also computed after a
/// forward pass on fragments, with logits so large that one bit of a score changes the weight.
std::string problem_of_attention(Gpu& gpu, TileKernel kernel, const PassVariant& variant);

}  // namespace heed::vulkan
