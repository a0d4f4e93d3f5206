#pragma once

#include "heed/backends/cpu/attention_bias.h"
#include "heed/backends/cpu/attention_panels.h"
#include "heed/backends/cpu/attention_single.h"
#include "heed/backends/cpu/thread_scratch.h"
#include "heed/core/bf16_products.h"

// The scores of a tile of queries and keys, in the one way in which both passes compute them. A score that differs in its
// last bit is another weight where scores are large: at 1e10 that bit is worth a factor of e^1000.

namespace heed::cpu {

/// Whether a tile is multiplied row by row: where it has so few rows, as when hypotheses of one sentence look at its
/// source, a general product spends its time on packing. Not under Bf16Products, where products are rounded.
inline bool takes_rows(std::int64_t rows) {
  constexpr std::int64_t few_rows = 8;
  return rows <= few_rows && !Bf16Products::active();
}

template <class T>
class Scores {
 public:
  Scores(const AttentionArgs& args, const AttentionPlan& plan)
      : args_(args), plan_(plan), query_(args.query), key_(args.key), bias_(args, plan) {}

  /// scale Q K^T and what is added to it for one tile, with its mask, in memory of the calling thread.
  ScoreTile<T> tile(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys) const {
    ScoreTile<T> tile;
    tile.rows = queries.rows();
    tile.columns = keys.columns;
    tile.stride = AttentionPlan::stride_of(keys.columns);
    tile.scores = thread_scratch<T>(score_slot, static_cast<std::size_t>(tile.rows * tile.stride));
    const T* query = query_.at(b, h, queries.begin);
    const T scale = static_cast<T>(args_.scale);
    for (const Segment& segment : keys.segments) {
      const T* key = key_.at(b, h, segment.key);
      T* to = tile.scores + segment.column;
      if (takes_rows(tile.rows)) {
        for (std::int64_t r = 0; r < tile.rows; ++r)
          row_times_transposed(query + r * query_.stride(), key, key_.stride(), segment.count, key_.width(),
                               scale, false, to + r * tile.stride);
      } else {
        gemm<T>(false, true, tile.rows, segment.count, key_.width(), scale, query, query_.stride(), key,
                key_.stride(), T{0}, to, tile.stride);
      }
    }
    bias_.add(b, h, queries, keys, tile.scores, tile.stride);
    tile.mask = plan_.mask(b, h, queries, keys);
    return tile;
  }

 private:
  const AttentionArgs& args_;
  const AttentionPlan& plan_;
  Panels<T> query_, key_;
  ScoreBias<T> bias_;
};

}  // namespace heed::cpu
