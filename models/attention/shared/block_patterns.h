#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/core/block_pattern.h"
#include "heed/models/attention/shared/heads.h"

namespace heed {

/// Values that were made before, by the numbers they depend on (the length first of all). Batches come in
/// many lengths; a run that meets more than `most` starts over. Values are handles, cheap to copy; several
/// threads may ask at once, of which one makes what is missing.
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

// What the block-sparse variants share: from the definition of a pattern to its blocks, without ever holding
// an N x N matrix.

enum class BlockContent { none, all, some };

/// A pattern in the words of a paper: which entry (i, j) of an attention matrix exists.
struct PatternDefinition {
  std::int64_t queries = 0, keys = 0;
  std::int64_t heads = 1;  ///< 1: the same for all heads
  std::int64_t block = 64;
  /// Entry (i, j) of a head. Asked only inside blocks that hold `some`, never beyond the matrix.
  std::function<bool(std::int64_t head, std::int64_t i, std::int64_t j)> entry;
  /// Block (row, column) of a head. `some` is always right, `none` and `all` save looking at every entry.
  std::function<BlockContent(std::int64_t head, std::int64_t row, std::int64_t column)> content;
};

/// The blocks that hold an entry. Blocks that turn out full need no mask, and equal masks are kept once.
std::shared_ptr<const BlockPattern> make_block_pattern(const PatternDefinition& definition);

/// Patterns that were built before.
using PatternCache = BoundedCache<std::shared_ptr<const BlockPattern>, 256>;

/// Self-attention in which the position of a query says which keys it looks at.
class PatternAttention : public Attention {
 public:
  /// i32 [H, N, N], 1 where a query looks at a key, padding aside. Slow: for looking inside.
  Tensor visible(std::int64_t length) const;

 protected:
  using Attention::Attention;
  /// The definition: whether query i of a sequence of `length` tokens looks at key j.
  virtual bool sees(std::int64_t head, std::int64_t i, std::int64_t j, std::int64_t length) const = 0;
  /// Leaves "weights" [B, H, N, N] by the definition, for whoever looks inside.
  void show_visible_weights(Context& context, const Tensor& query, const Tensor& key,
                            const Tensor& key_mask) const;
};

}  // namespace heed
