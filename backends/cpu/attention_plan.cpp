#include <algorithm>

#include "heed/backends/cpu/attention.h"
#include "heed/core/thread_pool.h"

namespace heed::cpu {
namespace {

// Two score tiles, with keys, values and their gradients, fit into a second-level cache of 1 MiB.
constexpr std::int64_t max_tile_columns = 256;
static_assert(max_tile_columns <= AttentionPlan::tile_stride);
// Keys per task if the backward pass is cut along keys.
constexpr std::int64_t keys_per_piece = 1024;

/// Tall tiles make the products fast; low tiles follow the causal diagonal more closely, which
/// pays off for short sequences.
std::int64_t most_rows(const AttentionArgs& args) {
  return args.causal && args.query.size(2) <= 512 ? max_tile_rows / 2 : max_tile_rows;
}

/// Makes tiles about equally wide, so that none is a thin remainder.
std::int64_t columns_of_tiles(std::int64_t keys) {
  const std::int64_t tiles = std::max<std::int64_t>(1, ceil_div(keys, max_tile_columns));
  return std::clamp<std::int64_t>(ceil_div(ceil_div(keys, tiles), 16) * 16, 16, max_tile_columns);
}

}  // namespace

AttentionPlan::AttentionPlan(const AttentionArgs& args)
    : batch(args.query.size(0)),
      heads(args.query.size(1)),
      queries(args.query.size(2)),
      keys(args.key.size(2)),
      args_(args),
      tile_rows_(most_rows(args)),
      step_(args.pattern ? max_tile_columns : columns_of_tiles(keys)),
      piece_(keys_per_piece / step_ * step_) {
  if (args.pattern) args.pattern->check_lists();
  band_ = args.pattern ? args.pattern->block : std::max<std::int64_t>(queries, 1);
  bands_ = ceil_div(queries, band_);
  tiles_per_band_ = ceil_div(band_, tile_rows_);
  // Tiles of equal height, so that none is a thin remainder.
  tile_rows_ = ceil_div(band_, tiles_per_band_);
}

QueryTile AttentionPlan::query_tile(std::int64_t index) const {
  const std::int64_t band = index / tiles_per_band_, part = index % tiles_per_band_;
  const std::int64_t band_end = std::min(queries, (band + 1) * band_);
  const std::int64_t begin = std::min(band_end, band * band_ + part * tile_rows_);
  return {begin, std::min(band_end, begin + tile_rows_)};
}

std::int64_t AttentionPlan::real_keys(std::int64_t b) const {
  if (!args_.key_mask.defined()) return keys;
  const std::int32_t* mask = args_.key_mask.data<std::int32_t>() + b * args_.key_mask.stride(0);
  const std::int64_t stride = args_.key_mask.stride(1);
  std::int64_t count = keys;
  while (count > 0 && mask[(count - 1) * stride] == 0) --count;
  return count;
}

double AttentionPlan::area() const {
  double area = 0;
  const std::int64_t distinct = args_.pattern ? args_.pattern->heads : 1;
  KeyTile tile;
  for (std::int64_t h = 0; h < distinct; ++h) {
    for (std::int64_t t = 0; t < tile_count(); ++t) {
      const QueryTile rows = query_tile(t);
      Walk walk(*this, h, rows, 0, keys);
      while (walk.next(tile)) area += static_cast<double>(rows.rows()) * static_cast<double>(tile.columns);
    }
  }
  return area * static_cast<double>(batch * heads) / static_cast<double>(distinct);
}

AttentionPlan::Walk::Walk(const AttentionPlan& plan, std::int64_t head, const QueryTile& queries,
                          std::int64_t key_begin, std::int64_t key_end)
    : plan_(plan), key_(key_begin), end_(key_end) {
  // The last query of the tile sees the most keys.
  if (plan.args_.causal) end_ = std::min(end_, queries.end + plan.keys - plan.queries);
  if (queries.rows() == 0) end_ = key_;
  if (const BlockPattern* pattern = plan.args_.pattern.get(); pattern && end_ > key_) {
    const auto* offset = pattern->offsets.data<std::int32_t>();
    const std::int64_t row = (pattern->heads == 1 ? 0 : head) * plan.bands_ + queries.begin / plan.band_;
    entry_ = offset[row];
    last_entry_ = offset[row + 1];
  }
}

bool AttentionPlan::Walk::next(KeyTile& tile) {
  tile.segments.clear();
  tile.partial.clear();
  tile.columns = 0;
  if (plan_.args_.pattern) return next_of_pattern(tile);
  if (key_ >= end_) return false;
  const std::int64_t count = std::min(plan_.step_, end_ - key_);
  add(tile, key_, count);
  key_ += count;
  return true;
}

void AttentionPlan::Walk::add(KeyTile& tile, std::int64_t key, std::int64_t count) const {
  if (!tile.segments.empty() && tile.segments.back().key + tile.segments.back().count == key) {
    tile.segments.back().count += count;
  } else {
    tile.segments.push_back({key, tile.columns, count});
  }
  tile.columns += count;
}

bool AttentionPlan::Walk::next_of_pattern(KeyTile& tile) {
  const BlockPattern& pattern = *plan_.args_.pattern;
  const auto* columns = pattern.columns.data<std::int32_t>();
  const auto* ids = pattern.mask_ids.data<std::int32_t>();
  // A block may be cut by the bounds, by the end of the tile's piece, or by a full tile.
  std::int64_t piece_end = end_;
  for (; entry_ < last_entry_ && tile.columns < plan_.step_; ++entry_) {
    const std::int64_t block_begin = columns[entry_] * pattern.block;
    const std::int64_t block_end = std::min(end_, block_begin + pattern.block);
    const std::int64_t begin = std::max(key_, block_begin);
    if (begin >= block_end) continue;
    if (tile.columns == 0) piece_end = (begin / plan_.piece_ + 1) * plan_.piece_;
    if (begin >= piece_end) break;
    const std::int64_t count = std::min(std::min(block_end, piece_end) - begin, plan_.step_ - tile.columns);
    if (ids[entry_] >= 0) tile.partial.push_back({tile.columns, count, ids[entry_], begin - block_begin});
    add(tile, begin, count);
    key_ = begin + count;
    if (key_ < block_end) break;
  }
  return tile.columns > 0;
}

bool AttentionPlan::needs_key_mask(std::int64_t b, const KeyTile& tile) const {
  if (!args_.key_mask.defined()) return false;
  const std::int32_t* mask = args_.key_mask.data<std::int32_t>() + b * args_.key_mask.stride(0);
  const std::int64_t stride = args_.key_mask.stride(1);
  for (const Segment& segment : tile.segments) {
    for (std::int64_t j = segment.key; j < segment.key + segment.count; ++j) {
      if (mask[j * stride] == 0) return true;
    }
  }
  return false;
}

TileMask AttentionPlan::mask(std::int64_t b, std::int64_t h, const QueryTile& queries,
                             const KeyTile& tile) const {
  const bool padded = needs_key_mask(b, tile), one = tile.segments.size() == 1;
  const std::int64_t key = tile.segments.front().key, offset = keys - this->queries;
  TileMask result;
  // The causal mask matters only if the tile's first query does not see its last key.
  const Segment& last = tile.segments.back();
  const bool cut = args_.causal && queries.begin + offset + 1 < last.key + last.count;
  if (cut && one) result.limit = queries.begin + offset + 1 - key;

  const bool masked = args_.mask.defined(), partial = !tile.partial.empty();
  if (!padded && !masked && !partial && (one || !cut)) return result;
  if (one && padded && !masked && !partial && args_.key_mask.stride(1) == 1) {
    result.allowed = args_.key_mask.data<std::int32_t>() + b * args_.key_mask.stride(0) + key;
    return result;
  }
  if (one && masked && !padded && !partial && args_.mask.stride(3) == 1) {
    const Shape& stride = args_.mask.strides();
    result.allowed =
        args_.mask.data<std::int32_t>() + b * stride[0] + h * stride[1] + queries.begin * stride[2] + key;
    result.stride = stride[2];
    return result;
  }
  result.stride = tile_stride;
  auto* room =
      thread_scratch<std::int32_t>(mask_slot, static_cast<std::size_t>(queries.rows() * result.stride));
  result.allowed = room;
  for (std::int64_t i = queries.begin; i < queries.end; ++i) {
    combine(b, h, i, tile, padded, room + (i - queries.begin) * result.stride);
  }
  return result;
}

void AttentionPlan::combine(std::int64_t b, std::int64_t h, std::int64_t query, const KeyTile& tile,
                            bool padded, std::int32_t* row) const {
  std::fill_n(row, tile.columns, 1);
  const std::int64_t visible = args_.causal ? query + keys - queries + 1 : keys;
  for (const Segment& segment : tile.segments) {
    std::int32_t* to = row + segment.column;
    if (padded) {
      const std::int64_t stride = args_.key_mask.stride(1);
      const std::int32_t* mask =
          args_.key_mask.data<std::int32_t>() + b * args_.key_mask.stride(0) + segment.key * stride;
      for (std::int64_t j = 0; j < segment.count; ++j) to[j] &= mask[j * stride] != 0;
    }
    if (args_.mask.defined()) {
      const Shape& stride = args_.mask.strides();
      const std::int32_t* mask = args_.mask.data<std::int32_t>() + b * stride[0] + h * stride[1] +
                                 query * stride[2] + segment.key * stride[3];
      for (std::int64_t j = 0; j < segment.count; ++j) to[j] &= mask[j * stride[3]] != 0;
    }
    const std::int64_t seen = std::clamp<std::int64_t>(visible - segment.key, 0, segment.count);
    std::fill(to + seen, to + segment.count, 0);
  }
  for (const PartialBlock& part : tile.partial) {
    const std::int64_t block = args_.pattern->block;
    const std::int32_t* mask =
        args_.pattern->masks.data<std::int32_t>() + (part.mask * block + query % block) * block + part.inside;
    for (std::int64_t j = 0; j < part.count; ++j) row[part.column + j] &= mask[j] != 0;
  }
}

}  // namespace heed::cpu
