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

/// How the score matrices of one attention call are cut into tiles. Depends on the shapes and masks alone,
/// never on the number of threads.
class AttentionPlan {
 public:
  /// Tiles have at most `tile_rows` x `tile_columns` entries. Throws when the block pattern does not fit the
  /// shapes or contradicts itself. `args` must outlive the plan.
  AttentionPlan(const AttentionArgs& args, std::int64_t tile_rows, std::int64_t tile_columns);

  std::int64_t batch, heads, queries, keys;

  std::int64_t tile_columns() const { return tile_columns_; }
  /// Query tiles per head.
  std::int64_t tile_count() const { return bands_ * tiles_per_band_; }
  /// May be empty (in the last band of blocks).
  QueryTile query_tile(std::int64_t index) const;
  /// The number of keys of a batch entry without the padding at the end.
  std::int64_t real_keys(std::int64_t b) const;
  /// Score entries that are computed for all batch entries and heads, padding not subtracted.
  double area() const;

  /// Walks the visible keys of a query tile inside [key_begin, key_end), one KeyTile at a time.
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
    std::int64_t key_, end_, step_;  // the dense walk, and the bounds of both
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
  std::int64_t tile_rows_, tile_columns_;
  std::int64_t band_;            // rows of one band: of a row of blocks, or all
  std::int64_t bands_;           // number of bands
  std::int64_t tiles_per_band_;  // query tiles in a band
};

}  // namespace heed::cpu
