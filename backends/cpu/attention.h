#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "heed/backends/cpu/blas.h"
#include "heed/backends/cpu/gemm.h"
#include "heed/core/attention.h"
#include "heed/core/backend.h"
#include "heed/core/low_precision.h"
#include "heed/core/tensor.h"
#include "heed/core/thread_pool.h"

namespace heed::cpu {

/// Rows [begin, end) of the score matrix of one head.
struct QueryTile {
  std::int64_t begin = 0, end = 0;
  std::int64_t rows() const { return end - begin; }
};

/// Keys [key, key + count) occupy columns [column, column + count) of a score tile.
struct Segment {
  std::int64_t key = 0, column = 0, count = 0;
};

/// Columns of a score tile that fall into one partly filled block of a BlockPattern.
struct PartialBlock {
  std::int64_t column = 0, count = 0;
  std::int64_t mask = 0;    ///< index of the pattern's mask
  std::int64_t inside = 0;  ///< position of the first column inside the block
};

/// The keys whose scores share one tile.
struct KeyTile {
  std::vector<Segment> segments;
  std::vector<PartialBlock> partial;
  std::int64_t columns = 0;
};

/// The entries of a score tile that exist.
struct TileMask {
  const std::int32_t* allowed = nullptr;  ///< nonzero if the entry exists; null: all exist
  std::int64_t stride = 0;                ///< between rows; 0: the same for all rows
  std::int64_t limit = no_limit;          ///< row r only has entries in columns < limit + r

  static constexpr std::int64_t no_limit = std::int64_t{1} << 62;
};

/// The thread_scratch() slots (thread_pool.h) that attention uses.
enum AttentionScratch : int { score_slot, gradient_slot, row_slot, mask_slot, word_slot };

/// Maximum rows of a score tile.
constexpr std::int64_t max_tile_rows = 128;

/// The tiles into which the score matrices of one attention call are cut. They depend only on the
/// shapes and masks, never on the number of threads, and are the same for both passes: products may
/// round differently in tiles of another shape, and backward must see exactly the scores that
/// forward saw.
class AttentionPlan {
 public:
  /// Throws if the block pattern does not fit the shapes or is inconsistent. `args` must outlive
  /// the plan.
  explicit AttentionPlan(const AttentionArgs& args);

  std::int64_t batch, heads, queries, keys;

  /// Query tiles per head.
  std::int64_t tile_count() const { return bands_ * tiles_per_band_; }
  /// Returns a tile of queries, which may be empty (in the last band of blocks).
  QueryTile query_tile(std::int64_t index) const;
  /// Returns the number of keys of a batch entry, without the padding at its end.
  std::int64_t real_keys(std::int64_t b) const;
  /// Returns the number of scores computed over all batch entries and heads, including padding.
  double area() const;

  /// Keys per piece. No tile crosses from one piece into the next.
  std::int64_t piece() const { return piece_; }

  /// Walks the visible keys of a query tile in [key_begin, key_end), one KeyTile at a time.
  /// key_begin must be the start of a piece.
  class Walk {
   public:
    Walk(const AttentionPlan& plan, std::int64_t head, const QueryTile& queries, std::int64_t key_begin,
         std::int64_t key_end);
    /// Fills `tile`; returns false when no keys are left.
    bool next(KeyTile& tile);

   private:
    void add(KeyTile& tile, std::int64_t key, std::int64_t count) const;
    bool next_of_pattern(KeyTile& tile);

    const AttentionPlan& plan_;
    std::int64_t key_, end_;  // the first key not yet visited, and the end
    std::int64_t entry_ = 0, last_entry_ = 0;
  };

  /// Returns the mask of one tile: a tensor's own memory, or the thread's scratch memory if masks
  /// must be combined.
  TileMask mask(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& tile) const;

  /// Row stride of a score tile, which own_gemm then multiplies without a copy.
  static constexpr std::int64_t tile_stride = packed_stride;

 private:
  bool needs_key_mask(std::int64_t b, const KeyTile& tile) const;
  void combine(std::int64_t b, std::int64_t h, std::int64_t query, const KeyTile& tile, bool padded,
               std::int32_t* row) const;

  const AttentionArgs& args_;
  std::int64_t tile_rows_;
  std::int64_t step_;            // maximum columns of a tile, counted from the first key of a piece
  std::int64_t piece_;           // a multiple of step_
  std::int64_t band_;            // rows of a band: one row of blocks, or all queries
  std::int64_t bands_;           // number of bands
  std::int64_t tiles_per_band_;  // query tiles in a band
};

// The elementwise part of attention, on one tile of scores at a time. T is float or double.

/// A tile of scores. Rows are 64-byte aligned, `stride` apart; the space between `columns`
/// and `stride` is free to use.
template <class T>
struct ScoreTile {
  T* scores = nullptr;
  std::int64_t stride = 0, rows = 0, columns = 0;
  TileMask mask;
};

/// Dropout on a tile of attention weights. Column c of a segment is decided by random element
/// first + row * keys + segment.key + (c - segment.column).
struct TileDropout {
  double p = 0;  ///< 0: none
  RandomKey key;
  std::uint64_t first = 0;  ///< element of the tile's first row and key 0
  std::int64_t keys = 0;
  const std::vector<Segment>* segments = nullptr;
};

/// Per-row values that the backward pass needs: the largest score, 1 / sum of exp(score - largest),
/// which is 0 for a row without scores, and delta. The first two are kept apart: added to a large
/// score, the logarithm of the sum would be rounded away.
template <class T>
struct SoftmaxRows {
  const T *largest, *inverse_sum, *delta;
};

/// The kernels that are compiled for each instruction set.
template <class T>
struct TileKernels {
  /// One step of the online softmax (Milakov and Gimelshein, arXiv 1805.02867). Replaces the scores
  /// by exp(score - maximum), 0 where masked or dropped (not rescaled by 1 / (1 - p)). `maximum`
  /// and `sum` [rows] carry over from tile to tile and start at -infinity and 0; `rescale` [rows]
  /// receives the factors for earlier results.
  void (*softmax)(const ScoreTile<T>& tile, const TileDropout& dropout, T* maximum, T* sum, T* rescale);

  /// Converts, in place, the scores s and the gradients g of the dropped-out weights (same stride)
  /// to
  ///   scores:    w k      with w = exp(s - largest) inverse_sum, k = 1 / (1 - p), 0 where dropped
  ///   gradients: w (g k - delta)
  /// A row without scores gives zeros. gradients and delta may be null: then only `scores` is
  /// updated.
  void (*softmax_backward)(const ScoreTile<T>& tile, const TileDropout& dropout, T* gradients,
                           const SoftmaxRows<T>& rows);

  /// Scales rows: x[r, :] *= factors[r]; a factor of 0 gives zeros, even for NaN.
  void (*scale_rows)(T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, const T* factors);

  /// Computes out[r] = sum over c of a[r, c] b[r, c].
  void (*row_dots)(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, std::int64_t rows,
                   std::int64_t columns, T* out);

  /// Computes scores[r, c] -= slope |position + r - key(c)|, where `position` is the first row's
  /// position among the keys.
  void (*subtract_distances)(T* scores, std::int64_t stride, std::int64_t rows, const KeyTile& keys, T slope,
                             std::int64_t position);

  /// Computes to[r, c] += from[r, c].
  void (*add_rows)(T* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t rows,
                   std::int64_t columns);
};
/// Returns the kernels of this processor.
template <class T>
TileKernels<T> tile_kernels();

// Terms added to the logits, one tile of scores at a time: ALiBi's slopes (Press, Smith and Lewis 2022,
// arXiv 2108.12409, section 3) and a bias.

/// The slopes and bias of one call; does nothing without them.
template <class T>
class ScoreBias {
 public:
  ScoreBias(const AttentionArgs& args, const AttentionPlan& plan)
      : slopes_(args.slopes.defined() ? args.slopes.data<T>() : nullptr),
        bias_(args.bias),
        offset_(plan.keys - plan.queries) {}

  /// Adds slopes and bias to the scaled scores of a tile.
  void add(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys, T* scores,
           std::int64_t stride) const {
    if (slopes_)
      kernels_.subtract_distances(scores, stride, queries.rows(), keys, slopes_[h], queries.begin + offset_);
    if (!bias_.defined()) return;
    const Shape& steps = bias_.strides();
    const T* rows = bias_.data<T>() + (bias_.size(0) > 1 ? b * steps[0] : 0) +
                    (bias_.size(1) > 1 ? h * steps[1] : 0) + queries.begin * steps[2];
    for (const Segment& segment : keys.segments) {
      kernels_.add_rows(scores + segment.column, stride, rows + segment.key, steps[2], queries.rows(),
                        segment.count);
    }
  }

 private:
  const TileKernels<T> kernels_ = tile_kernels<T>();
  const T* slopes_;
  const Tensor& bias_;
  std::int64_t offset_;  // position of the first query among the keys
};

/// The gradient of the bias. Heads that share an entry of it form a group, which one task adds up
/// in order. If no gradient is wanted, every head is a group of its own.
template <class T>
class BiasGradient {
 public:
  BiasGradient(const Tensor& dbias, const AttentionPlan& plan)
      : batches_(dbias.defined() ? dbias.size(0) : plan.batch),
        heads_(dbias.defined() ? dbias.size(1) : plan.heads),
        plan_(plan),
        data_(dbias.defined() ? dbias.data<T>() : nullptr) {}

  bool wanted() const { return data_ != nullptr; }
  std::int64_t groups() const { return batches_ * heads_; }
  bool shared() const { return groups() != plan_.batch * plan_.heads; }

  /// Calls visit(b, h) for all heads of a group.
  template <class Visit>
  void for_each_head(std::int64_t group, const Visit& visit) const {
    const std::int64_t one_b = group / heads_, one_h = group % heads_;
    const bool all_b = batches_ != plan_.batch, all_h = heads_ != plan_.heads;
    for (std::int64_t b = all_b ? 0 : one_b; b < (all_b ? plan_.batch : one_b + 1); ++b) {
      for (std::int64_t h = all_h ? 0 : one_h; h < (all_h ? plan_.heads : one_h + 1); ++h) visit(b, h);
    }
  }

  void clear(std::int64_t group, std::int64_t query_begin, std::int64_t query_end) const {
    if (!data_) return;
    T* from = data_ + (group * plan_.queries + query_begin) * plan_.keys;
    std::fill_n(from, (query_end - query_begin) * plan_.keys, T{0});
  }

  /// Adds the gradients of a tile of scores.
  void add(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys, const T* dscores,
           std::int64_t stride) const {
    if (!data_) return;
    const std::int64_t group = (batches_ > 1 ? b : 0) * heads_ + (heads_ > 1 ? h : 0);
    T* rows = data_ + (group * plan_.queries + queries.begin) * plan_.keys;
    for (const Segment& segment : keys.segments) {
      kernels_.add_rows(rows + segment.key, plan_.keys, dscores + segment.column, stride, queries.rows(),
                        segment.count);
    }
  }

 private:
  const TileKernels<T> kernels_ = tile_kernels<T>();
  std::int64_t batches_, heads_;
  const AttentionPlan& plan_;
  T* data_;
};

// Shared by the forward and the backward pass of attention.

/// The matrices [rows, width] of a tensor [B, H, rows, width], addressed in place;
/// none for an undefined tensor.
template <class T>
class Panels {
 public:
  explicit Panels(const Tensor& tensor) {
    if (!tensor.defined()) return;
    data_ = tensor.data<T>();
    batch_stride_ = tensor.stride(0);
    head_stride_ = tensor.stride(1);
    width_ = tensor.size(3);
    // BLAS needs a row stride of at least the width, even for a single row.
    row_stride_ = std::max(tensor.stride(2), width_);
  }

  bool defined() const { return data_ != nullptr; }

  T* at(std::int64_t b, std::int64_t h, std::int64_t row = 0) const {
    return data_ + b * batch_stride_ + h * head_stride_ + row * row_stride_;
  }
  std::int64_t width() const { return width_; }
  std::int64_t stride() const { return row_stride_; }

 private:
  T* data_ = nullptr;
  std::int64_t batch_stride_ = 0, head_stride_ = 0, width_ = 0, row_stride_ = 0;
};

/// The dropout of one score tile.
inline TileDropout tile_dropout(const AttentionArgs& args, const AttentionPlan& plan, std::int64_t b,
                                std::int64_t h, std::int64_t query, const KeyTile& keys) {
  const std::int64_t row = (b * plan.heads + h) * plan.queries + query;
  return {args.dropout, args.dropout_key,
          static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(plan.keys), plan.keys, &keys.segments};
}

// The scores of a tile of queries and keys, computed identically in both passes. For large scores, a
// difference in the last bit gives a different weight: at 1e10 that bit is worth a factor of e^1000.

/// Returns whether to multiply a tile row by row. With few rows, as when the hypotheses of one
/// sentence attend to its source, a general product would spend its time on packing. Lower precisions
/// need the general product.
inline bool uses_row_products(std::int64_t rows) {
  constexpr std::int64_t few_rows = 8;
  return rows <= few_rows && !WithMatmulPrecision::is_lower();
}

template <class T>
class Scores {
 public:
  Scores(const AttentionArgs& args, const AttentionPlan& plan)
      : args_(args), plan_(plan), query_(args.query), key_(args.key), bias_(args, plan) {}

  /// Computes scale Q K^T plus slopes and bias for one tile, with its mask, in scratch memory of
  /// the calling thread.
  ScoreTile<T> tile(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& keys) const {
    ScoreTile<T> tile;
    tile.rows = queries.rows();
    tile.columns = keys.columns;
    tile.stride = AttentionPlan::tile_stride;
    tile.scores = thread_scratch<T>(score_slot, static_cast<std::size_t>(tile.rows * tile.stride));
    const T* query = query_.at(b, h, queries.begin);
    const T scale = static_cast<T>(args_.scale);
    for (const Segment& segment : keys.segments) {
      const T* key = key_.at(b, h, segment.key);
      T* to = tile.scores + segment.column;
      if (uses_row_products(tile.rows)) {
        row_products<T>().times_transposed(
            {query, query_.stride(), tile.rows, segment.count, key_.width(), scale, false, to, tile.stride},
            key, key_.stride());
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
