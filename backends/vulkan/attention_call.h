#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "heed/backends/vulkan/launch.h"
#include "heed/core/backend.h"

// What the host does before attention's shaders run (shaders/attention.glsl): tiles, masks, limits.

namespace heed::vulkan {

/// A tensor [B, H, L, d] whose batch stride follows from the others, which saves a push constant: a batch
/// entry lies behind the one before as [L, H, d] or as [H, L, d].
struct AttentionOperand {
  Tensor tensor;
  bool heads_outside = false;

  std::int64_t row_stride() const { return tensor.stride(2); }
  std::int64_t head_stride() const { return tensor.stride(1); }
};

/// The tensor itself where its strides and its size allow and its lines begin in steps of so many elements,
/// else a contiguous copy.
AttentionOperand attention_input(const Gpu& gpu, const Tensor& x, std::int64_t step = 1);
/// The tensor itself where it has no gaps and its lines begin in such steps, or a contiguous one of its
/// shape, to be copied to it afterwards.
AttentionOperand attention_output(const Gpu& gpu, const Tensor& x, std::int64_t step = 1);
/// Copies what was not written in place.
void finish_output(const AttentionOperand& written, const Tensor& x);

/// A part of the work of a pass: a launch that the device's limits allow.
struct AttentionPart {
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
  Tensor mask;      ///< bits, or undefined
  Tensor pattern;   ///< its lists on the device, or undefined

  /// Score entries that are computed, padding not subtracted.
  double area() const;
  /// Whether what each part binds of x begins and goes on in steps of so many elements.
  static bool is_aligned(const AttentionOperand& x, std::int64_t elements = 4);

 private:
  Tensor mask_bits() const;
  Tensor pattern_lists() const;
};

/// How a workgroup of a pass takes a tile: the first constants of shaders/attention.glsl.
struct AttentionGroup {
  std::int64_t invocations = 16;
  std::int64_t lanes = 4;  ///< invocations side by side, of four columns each
  std::int64_t own = 1;  ///< vec4s of a row of the result in an invocation; of fragments: lanes of a subgroup
  std::int64_t slices = 1;                                ///< of the result's width, each a workgroup's
  std::int64_t fragment_columns = 0, fragment_depth = 0;  ///< 0: ordinary arithmetic

  std::int64_t rows() const { return 4 * invocations / lanes; }
  std::int64_t columns() const { return 4 * lanes; }
};

/// Rows that a tile of a pass holds at most: of one block of the pattern, if there is one.
std::int64_t longest_tile(const AttentionCall& call, bool rows_are_queries);
/// For ordinary arithmetic: square tiles. `result_width` is the width of the widest result, of which an
/// invocation holds at most `most_quads` times four columns.
AttentionGroup square_group(const AttentionCall& call, bool rows_are_queries, std::int64_t result_width,
                            std::int64_t most_quads);

/// One of the passes: how its tiles are cut, and what it binds beside query, key and value.
class AttentionPass {
 public:
  AttentionPass(const AttentionCall& call, bool rows_are_queries, const AttentionGroup& group);

  /// An operand after query, key and value.
  AttentionPass& input(const AttentionOperand& x, bool per_query);
  AttentionPass& output(const AttentionOperand& x, bool per_query);
  /// A f32 tensor [B, H, N, ...], contiguous.
  AttentionPass& statistics(const Tensor& x, bool written);
  /// The gradient of the bias, f32, of its shape and contiguous. A workgroup of this pass then takes one tile
  /// of columns alone, and adds to what is there.
  AttentionPass& bias_gradient(const Tensor& x);
  void run(const char* shader, double flops) const;

 private:
  struct Bound {
    AttentionOperand operand;
    bool per_row = false;  // of a tile, not per column
    bool written = false;
    bool is_statistic = false;
    bool is_bias = false;  // or its gradient
  };

  AttentionPass& add(const AttentionOperand& x, bool per_query, bool written);
  std::int64_t first_row_of(std::int64_t tile) const;
  Tensor view_of(const Bound& bound, const AttentionPart& part) const;
  std::int64_t most_column_tiles() const;
  const Bound* written_bias() const;
  bool fits(const AttentionPart& part) const;
  void launch(const char* shader, double flops, const AttentionPart& part) const;
  void run_part(const char* shader, double flops, const AttentionPart& part) const;
  std::uint32_t flags() const;

  const AttentionCall& call_;
  bool rows_are_queries_;
  std::int64_t rows_;
  AttentionGroup group_;
  std::int64_t tiles_;
  std::vector<Bound> bound_;
};

}  // namespace heed::vulkan
