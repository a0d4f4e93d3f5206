#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "heed/autograd/ops.h"
#include "heed/core/attention.h"
#include "heed/models/attention/attention.h"
#include "heed/models/positions.h"

namespace heed {

// Shared by the block-sparse variants: from the definition of a pattern to its blocks, without ever
// holding an N x N matrix.

enum class BlockContent { none, all, some };

/// A pattern as papers define it: which entries (i, j) of an attention matrix exist.
struct PatternDefinition {
  std::int64_t queries = 0, keys = 0;
  std::int64_t heads = 1;  ///< 1: the same for all heads
  std::int64_t block = 64;
  /// Whether entry (i, j) of a head exists. Called only inside blocks classified as `some`, never
  /// beyond the matrix.
  std::function<bool(std::int64_t head, std::int64_t i, std::int64_t j)> entry;
  /// Classifies block (row, column) of a head. `some` is always correct; `none` and `all` avoid
  /// testing every entry.
  std::function<BlockContent(std::int64_t head, std::int64_t row, std::int64_t column)> content;
};

/// The blocks that hold an entry. Blocks that turn out full need no mask, and equal masks are
/// stored once.
std::shared_ptr<const BlockPattern> make_block_pattern(const PatternDefinition& definition);

/// The window least <= i - j <= most of one head, where the last query stands at the last key.
PatternDefinition window_definition(std::int64_t queries, std::int64_t keys, std::int64_t least,
                                    std::int64_t most);

/// Block patterns built earlier.
using PatternCache = BoundedCache<std::shared_ptr<const BlockPattern>, 256>;

/// Self-attention in which the position of a query determines which keys it sees.
class PatternAttention : public Attention {
 public:
  /// i32 [H, N, N], 1 where a query sees a key, ignoring padding. Slow: for inspection only.
  Tensor visible(std::int64_t length) const;

 protected:
  explicit PatternAttention(const AttentionConfig& config)
      : Attention(config), rotary_(config), distances_(config, initialiser_) {}
  /// The definition: whether query i of a sequence of `length` tokens sees key j.
  virtual bool sees(std::int64_t head, std::int64_t i, std::int64_t j, std::int64_t length) const = 0;
  /// Records "weights" [B, H, N, N] as the definition gives them; only under a capture.
  void show_visible_weights(Context& context, const Tensor& query, const Tensor& key,
                            const Tensor& key_mask) const;

  Rotary rotary_;
  DistanceBias distances_;
  PatternCache patterns_;
};

}  // namespace heed
