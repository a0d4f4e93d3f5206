#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "heed/core/block_pattern.h"

namespace heed {

/// The sets of keys of the Sparse Transformer: A1, A2 and their union.
enum class KeySet { local, distant, both };

/// Which keys a query sees, as in the head of sparse_transformer.cpp, and the blocks that hold them.
struct KeySets {
  bool strided = true;  ///< false: fixed
  bool causal = false;
  std::int64_t stride = 1;   ///< l
  std::int64_t summary = 1;  ///< c

  bool sees(KeySet set, std::int64_t i, std::int64_t j) const;
  /// The keys that anybody sees: where some are seen by all, these come first, so that they fill blocks.
  std::vector<std::int32_t> key_order(KeySet set, std::int64_t length) const;
  /// For `length` queries and the keys in the given order. Not for strided A2, which touches most blocks.
  std::shared_ptr<const BlockPattern> blocks(KeySet set, std::int64_t length,
                                             const std::vector<std::int32_t>& order) const;

 private:
  bool is_summary(std::int64_t j) const { return j % stride >= stride - summary; }
  bool may_see(KeySet set, std::int64_t first, std::int64_t last, std::int64_t j) const;
};

}  // namespace heed
