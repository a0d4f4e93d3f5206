#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heed/backends/vulkan/launch.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/core/attention.h"
#include "heed/core/backend.h"

namespace heed::vulkan {

// --- attention_call.cpp: what the host does before attention's shaders run (shaders/attention.glsl): tiles,
// masks, limits

/// A tensor [B, H, L, d] whose batch stride follows from its other strides, which saves a push
/// constant: each batch entry follows the one before, laid out as [L, H, d] or as [H, L, d].
struct AttentionOperand {
  Tensor tensor;
  bool heads_outside = false;

  std::int64_t row_stride() const { return tensor.stride(2); }
  std::int64_t head_stride() const { return tensor.stride(1); }
};

/// Returns the tensor itself if its strides and size allow it and its start, width and strides are
/// multiples of `step` elements; otherwise a contiguous copy.
AttentionOperand attention_input(const Gpu& gpu, const Tensor& x, std::int64_t step = 1);
/// Returns the tensor itself under the same conditions, if it has no gaps; otherwise a new
/// contiguous tensor of its shape, from which finish_output() copies the result.
AttentionOperand attention_output(const Gpu& gpu, const Tensor& x, std::int64_t step = 1);
/// Copies the result to x, unless it was written in place.
void finish_output(const AttentionOperand& written, const Tensor& x);

/// A part of the work of a pass, small enough for one launch within the device's limits.
struct PassPart {
  std::int64_t batch = 0, batches = 0;
  std::int64_t head = 0, heads = 0;
  std::int64_t tile = 0, tiles = 0;
};

/// One attention call, forward or backward.
class AttentionCall {
 public:
  explicit AttentionCall(const AttentionArgs& args);

  Gpu& gpu;
  std::int64_t batch, heads, queries, keys, key_width, value_width;
  const AttentionArgs& args;
  AttentionOperand query, key, value;
  Tensor key_mask;  ///< [B, M] contiguous, or undefined
  Tensor bias;      ///< [1 or B, 1 or H, N, M] contiguous, or undefined
  Tensor mask;      ///< one bit per entry, or undefined
  Tensor pattern;   ///< the block pattern's lists on the device, or undefined

  /// Returns the number of scores that are computed, including padding.
  double area() const;
  /// Returns whether the start, width and strides of x are multiples of `elements` elements, so
  /// that every part of it is aligned.
  static bool is_aligned(const AttentionOperand& x, std::int64_t elements = 4);

 private:
  Tensor mask_bits() const;
  Tensor pattern_lists() const;
};

/// The workgroups of a pass and their tiles: the first specialisation constants of
/// shaders/attention.glsl.
struct AttentionGroup {
  std::int64_t invocations = 16;
  std::int64_t lanes = 4;  ///< invocations side by side, each with four columns
  /// The vec4s of a result row per invocation; with fragments, the lanes of a subgroup.
  std::int64_t own = 1;
  /// Slices of the result's width, one workgroup each.
  std::int64_t slices = 1;
  std::int64_t fragment_columns = 0, fragment_depth = 0;  ///< 0: ordinary arithmetic

  std::int64_t rows() const { return 4 * invocations / lanes; }
  std::int64_t columns() const { return 4 * lanes; }
};

/// Returns the most rows that a tile of a pass can hold: with a block pattern, those of one block.
std::int64_t longest_tile(const AttentionCall& call, bool rows_are_queries);
/// Returns the square tiles of ordinary arithmetic. `result_width` is the width of the widest
/// result; an invocation holds at most 4 x `most_quads` columns of it.
AttentionGroup square_group(const AttentionCall& call, bool rows_are_queries, std::int64_t result_width,
                            std::int64_t most_quads);

/// One of the passes: its tiles, and its operands in addition to query, key and value.
class AttentionPass {
 public:
  AttentionPass(const AttentionCall& call, bool rows_are_queries, const AttentionGroup& group);

  /// Binds an operand after query, key and value. `per_query`: it has a row per query, not per key.
  AttentionPass& input(const AttentionOperand& x, bool per_query);
  AttentionPass& output(const AttentionOperand& x, bool per_query);
  /// Binds a contiguous f32 tensor [B, H, N, ...] of numbers per query.
  AttentionPass& statistics(const Tensor& x, bool written);
  /// Binds the gradient of the bias: f32, contiguous, of the bias's shape. Each workgroup of this
  /// pass then takes a single tile of columns, and adds to what the gradient holds.
  AttentionPass& bias_gradient(const Tensor& x);
  void run(const char* shader, double flops) const;

 private:
  struct Bound {
    AttentionOperand operand;
    bool per_row = false;  // one row per row of a tile, not per column
    bool written = false;
    bool is_statistic = false;
    bool is_bias = false;  // the bias or its gradient
  };

  AttentionPass& add(const AttentionOperand& x, bool per_query, bool written);
  std::int64_t tile_first_row(std::int64_t tile) const;
  Tensor bind_view(const Bound& bound, const PassPart& part) const;
  std::int64_t most_column_tiles() const;
  const Bound* written_bias() const;
  bool fits(const PassPart& part) const;
  void launch(const char* shader, double flops, const PassPart& part) const;
  void run_part(const char* shader, double flops, const PassPart& part) const;
  std::uint32_t flags() const;

  const AttentionCall& call_;
  bool rows_are_queries_;
  std::int64_t rows_;
  AttentionGroup group_;
  std::int64_t tiles_;
  std::vector<Bound> bound_;
};

// --- attention.cpp: on matrix hardware (shaders/attention_fragments.comp) or by ordinary arithmetic
// (shaders/attention_products.comp)

/// The fragments of a device: the lanes of a subgroup, the rows of a fragment, the most subgroups
/// of a workgroup, and the columns and depth of a fragment.
struct FragmentShape {
  std::int64_t lanes = 32, rows = 16, subgroups = 4, columns = 16, depth = 16;
};

/// The passes that fragments compute: the result, the gradient of the queries, that of keys and
/// values, and that of the bias.
enum class FragmentPass { forward, dquery, dkey, dbias };

/// Returns the workgroups with which fragments compute a pass of a call, or nullopt if they cannot
/// compute it: operands in f32; widths below 16, above 128 or not multiples of eight; lines that do
/// not begin at multiples of eight elements; fewer than 16 rows (queries, or keys for their
/// gradients; with a pattern, rows of a block); a device whose workgroups are too small. Masks,
/// biases and dropout make no difference.
std::optional<AttentionGroup> fragment_group(const AttentionCall& call, FragmentPass pass,
                                             FragmentShape fragment);

/// A fragment kernel and its workgroups.
struct FragmentKernel {
  TileKernel kernel;  ///< the cooperative one, or its emulation for tests
  AttentionGroup group;
};
/// Chooses the fragment kernel of a pass; nullopt means ordinary arithmetic.
using FragmentChoice = std::function<std::optional<FragmentKernel>(const AttentionCall&, FragmentPass)>;

/// Returns a choice of always this kernel; it throws an Error for a call that fragments cannot
/// compute.
FragmentChoice always(TileKernel kernel, FragmentShape fragment);

/// Run the attention kernels of core/kernels.def with a choice of fragment kernels.
void attention_forward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                          const Tensor& sums);
void attention_backward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                           const Tensor& sums, const Tensor& grad, const Tensor& log_sum_exp_grad,
                           const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
                           const Tensor& dbias);

/// Returns whether the results of fragments of this type differ from those of ordinary arithmetic; "" if they
/// agree. `kernel` is the cooperative one, or its emulation for tests.
///
/// The forward pass is tested with scores that are multiples of a number so large that weights are
/// 0 or 1 before they are divided by their sum. Everything is then exact, and the results must
/// agree to the last bit. The gradients are tested with real weights, which are rounded to half
/// precision; they may differ by a few such roundings of their largest element. The gradients of
/// keys and values, whose products swap their factors, are also computed after a forward pass on
/// fragments, with logits so large that one bit of a score changes the weight.
std::string problem_of_attention(Gpu& gpu, TileKernel kernel, DType dtype, FragmentShape fragment,
                                 std::int64_t width = 64);

}  // namespace heed::vulkan
