#pragma once

#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"

namespace heed {

/// [B, N, H dh] -> [B, H, N, dh], a view: head h owns columns h dh ... (h + 1) dh - 1.
Tensor split_heads(const Tensor& x, std::int64_t heads);
/// [B, H, N, dh] -> [B, N, H dh], the inverse: a view when x lies in memory as [B, N, H, dh], else a copy.
Tensor merge_heads(const Tensor& x);

/// Wq, Wk and Wv [d -> H dh] and Wo [H dh -> d], drawn in this order: the parts "query", "key", "value" and
/// "output" of most variants. With `key_heads` Wk and Wv have so many heads; 0: H.
struct Projections {
  Projections(const AttentionConfig& config, Initialiser& initialiser, std::int64_t key_heads = 0);

  /// What the first three make of the same x, in one op.
  struct Projected {
    Tensor query, key, value;
  };
  Projected of(const Tensor& x) const;
  /// The keys and values of a memory, in one op; no query.
  Projected of_memory(const Tensor& memory) const;

  Linear query, key, value, output;
};

}  // namespace heed
