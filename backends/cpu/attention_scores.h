#pragma once

#include <cstdint>

#include "heed/backends/cpu/attention_plan.h"

// The elementwise part of attention, on one tile of scores at a time. T is float or double.

namespace heed::cpu {

/// A tile of scores. Rows are 64-byte aligned, `stride` apart; what lies between `columns` and `stride`
/// is free to use.
template <class T>
struct ScoreTile {
  T* scores = nullptr;
  std::int64_t stride = 0, rows = 0, columns = 0;
  TileMask mask;
};

/// Dropout on a tile of weights: column c of a segment that starts at `key` is decided by element
/// first + row * keys + key + (c - segment.column).
struct TileDropout {
  double p = 0;  ///< 0: none
  RandomKey key;
  std::uint64_t first = 0;  ///< element of the tile's first row and key 0
  std::int64_t keys = 0;
  const std::vector<Segment>* segments = nullptr;
};

/// One step of the online softmax (Milakov and Gimelshein, arXiv 1805.02867). Replaces the scores by
/// exp(score - maximum), 0 where masked or dropped (not rescaled by 1 / (1 - p)). `maximum` and `sum` [rows]
/// are carried from tile to tile and start as -infinity and 0; `rescale` [rows] gets what earlier results
/// must be multiplied by.
template <class T>
void softmax_tile(const ScoreTile<T>& tile, const TileDropout& dropout, T* maximum, T* sum, T* rescale);

/// What the backward pass knows of the rows of a tile: the largest score, 1 / sum of exp(score - largest), which is 0
/// where there is no score, and delta. The first two stay apart: their logarithm, beside a large score, would be rounded
/// away.
template <class T>
struct SoftmaxRows {
  const T *largest, *inverse_sum, *delta;
};

/// From scores s and the gradients g of the dropped-out weights (same stride) to, in place,
///   scores:    w k        with w = exp(s - largest) inverse_sum, k = 1 / (1 - p) where kept, 0 where dropped
///   gradients: w (g k - delta)
/// A row without scores gives zeros. gradients and delta may be null: then it is the scores alone.
template <class T>
void softmax_tile_backward(const ScoreTile<T>& tile, const TileDropout& dropout, T* gradients,
                           const SoftmaxRows<T>& rows);

/// x[r, :] *= factors[r]; a factor of 0 gives zeros whatever was there.
template <class T>
void scale_rows(T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, const T* factors);

/// out[r] = sum over c of a[r, c] b[r, c].
template <class T>
void row_dots(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, std::int64_t rows,
              std::int64_t columns, T* out);

}  // namespace heed::cpu
