#pragma once

#include <cstdint>
#include <vector>

#include "heed/core/backend.h"

namespace heed::cpu {

/// Rows [begin, end) of the score matrix of one head.
struct QueryTile {
  std::int64_t begin = 0, end = 0;
  std::int64_t rows() const { return end - begin; }
};

/// Keys [key, key + count) stand in columns [column, column + count) of a score tile.
struct Segment {
  std::int64_t key = 0, column = 0, count = 0;
};

/// Columns of a score tile that fall into one partly filled block of a BlockPattern.
struct PartialBlock {
  std::int64_t column = 0, count = 0;
  std::int64_t mask = 0;    ///< which of the pattern's masks
  std::int64_t inside = 0;  ///< position of the first column inside the block
};

/// The keys that one tile of scores holds side by side.
struct KeyTile {
  std::vector<Segment> segments;
  std::vector<PartialBlock> partial;
  std::int64_t columns = 0;
};

/// Which entries of a score tile exist.
struct TileMask {
  const std::int32_t* allowed = nullptr;  ///< nonzero where the entry exists; null: all do
  std::int64_t stride = 0;                ///< from row to row; 0: the same for all rows
  std::int64_t limit = no_limit;          ///< row r has entries only in columns < limit + r

  static constexpr std::int64_t no_limit = std::int64_t{1} << 62;
};

/// Buffers of the calling thread (thread_scratch.h) that attention uses.
enum AttentionScratch : int { score_slot, gradient_slot, row_slot, mask_slot, word_slot };

/// The most rows a tile of scores has.
constexpr std::int64_t max_tile_rows = 128;

/// How the score matrices of one attention call are cut into tiles. Depends on the shapes and masks alone,
/// never on the number of threads, and is the same for both passes: a product may round otherwise in a tile of another
/// shape, and backward has to see the very scores that forward saw.
class AttentionPlan {
 public:
  /// Throws when the block pattern does not fit the shapes or contradicts itself. `args` must outlive the plan.
  explicit AttentionPlan(const AttentionArgs& args);

  std::int64_t batch, heads, queries, keys;

  /// Query tiles per head.
  std::int64_t tile_count() const { return bands_ * tiles_per_band_; }
  /// May be empty (in the last band of blocks).
  QueryTile query_tile(std::int64_t index) const;
  /// The number of keys of a batch entry without the padding at the end.
  std::int64_t real_keys(std::int64_t b) const;
  /// Score entries that are computed for all batch entries and heads, padding not subtracted.
  double area() const;

  /// Keys of one piece. No tile reaches from one piece into the next.
  std::int64_t piece() const { return piece_; }

  /// Walks the visible keys of a query tile inside [key_begin, key_end), one KeyTile at a time. key_begin is the beginning
  /// of a piece.
  class Walk {
   public:
    Walk(const AttentionPlan& plan, std::int64_t head, const QueryTile& queries, std::int64_t key_begin,
         std::int64_t key_end);
    /// Fills `tile`; false when no key is left.
    bool next(KeyTile& tile);

   private:
    void add(KeyTile& tile, std::int64_t key, std::int64_t count) const;
    bool next_of_pattern(KeyTile& tile);

    const AttentionPlan& plan_;
    std::int64_t key_, end_;  // the first key that has not been visited, and the end
    std::int64_t entry_ = 0, last_entry_ = 0;
  };

  /// The mask of one tile: a tensor's own memory, or scratch memory of the thread where
  /// masks must be combined.
  TileMask mask(std::int64_t b, std::int64_t h, const QueryTile& queries, const KeyTile& tile) const;

  /// Row stride of a score tile: whole vectors of any width.
  static std::int64_t stride_of(std::int64_t columns) { return (columns + 63) / 64 * 64; }

 private:
  void check_pattern() const;
  bool needs_key_mask(std::int64_t b, const KeyTile& tile) const;
  void combine(std::int64_t b, std::int64_t h, std::int64_t query, const KeyTile& tile, bool padded,
               std::int32_t* row) const;

  const AttentionArgs& args_;
  std::int64_t tile_rows_;
  std::int64_t step_;            // columns of a tile at most, from the first key of a piece on
  std::int64_t piece_;           // a multiple of step_
  std::int64_t band_;            // rows of one band: of a row of blocks, or all
  std::int64_t bands_;           // number of bands
  std::int64_t tiles_per_band_;  // query tiles in a band
};

}  // namespace heed::cpu
