#pragma once

#include "heed/models/attention/attention.h"
#include "heed/models/layers.h"

namespace heed {

/// [B, N, H dh] -> [B, H, N, dh], a view: head h owns columns h dh ... (h + 1) dh - 1.
Tensor split_heads(const Tensor& x, std::int64_t heads);
/// [B, H, N, dh] -> [B, N, H dh], the inverse: a view if the memory of x is [B, N, H, dh], else a copy.
Tensor merge_heads(const Tensor& x);

/// Wq, Wk and Wv [d -> H dh] and Wo [H dh -> d], initialised in this order: the modules "query", "key",
/// "value" and "output" of most variants. `key_heads` is the number of heads of Wk and Wv; 0: H.
struct Projections {
  Projections(const AttentionConfig& config, Initialiser& initialiser, std::int64_t key_heads = 0);

  /// Query, key and value projections of the same x, computed in one op.
  struct Projected {
    Tensor query, key, value;
  };
  Projected of(const Tensor& x) const;
  /// Key and value projections of a memory, computed in one op; the query stays undefined.
  Projected of_memory(const Tensor& memory) const;

  Linear query, key, value, output;
};

}  // namespace heed
