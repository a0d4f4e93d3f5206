#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/core/attention.h"
#include "heed/models/attention/attention.h"

namespace heed {

/// Caches values by the numbers they depend on (the length first of all). Batches come in many lengths, so
/// a full cache of `most` values is cleared. Values are handles, cheap to copy. Safe to use from several
/// threads: one builds a missing value while the others wait.
template <class Value, std::size_t most>
class BoundedCache {
 public:
  using Key = std::vector<std::int64_t>;

  template <class Make>
  Value get(const Key& key, Make&& make) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    Value made = make();
    if (values_.size() >= most) values_.clear();
    return values_[key] = std::move(made);
  }

 private:
  std::mutex mutex_;
  std::map<Key, Value> values_;
};

// Shared by the block-sparse variants: from the definition of a pattern to its blocks, without ever holding
// an N x N matrix.

enum class BlockContent { none, all, some };

/// A pattern as papers define it: which entries (i, j) of an attention matrix exist.
struct PatternDefinition {
  std::int64_t queries = 0, keys = 0;
  std::int64_t heads = 1;  ///< 1: the same for all heads
  std::int64_t block = 64;
  /// Whether entry (i, j) of a head exists. Called only inside blocks classified as `some`, never beyond
  /// the matrix.
  std::function<bool(std::int64_t head, std::int64_t i, std::int64_t j)> entry;
  /// Classifies block (row, column) of a head. `some` is always correct; `none` and `all` avoid testing
  /// every entry.
  std::function<BlockContent(std::int64_t head, std::int64_t row, std::int64_t column)> content;
};

/// The blocks that hold an entry. Blocks that turn out full need no mask, and equal masks are stored once.
std::shared_ptr<const BlockPattern> make_block_pattern(const PatternDefinition& definition);

/// Block patterns built earlier.
using PatternCache = BoundedCache<std::shared_ptr<const BlockPattern>, 256>;

/// Self-attention in which the position of a query determines which keys it sees.
class PatternAttention : public Attention {
 public:
  /// i32 [H, N, N], 1 where a query sees a key, ignoring padding. Slow: for inspection only.
  Tensor visible(std::int64_t length) const;

 protected:
  using Attention::Attention;
  /// The definition: whether query i of a sequence of `length` tokens sees key j.
  virtual bool sees(std::int64_t head, std::int64_t i, std::int64_t j, std::int64_t length) const = 0;
  /// Records "weights" [B, H, N, N] as the definition gives them; only under a capture.
  void show_visible_weights(Context& context, const Tensor& query, const Tensor& key,
                            const Tensor& key_mask) const;
};

}  // namespace heed
