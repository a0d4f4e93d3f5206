#include "heed/backends/vulkan/matmul_plan.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "heed/base/error.h"

namespace heed::vulkan {
namespace {

constexpr TileShape scalar_tile(std::uint32_t rows, std::uint32_t columns, std::uint32_t own_rows,
                                std::uint32_t own_columns, double efficiency) {
  constexpr std::uint32_t depth = 16;
  return {rows,
          columns,
          depth,
          own_rows,
          own_columns,
          rows * columns / (own_rows * own_columns),
          depth * (rows + columns + 8) * 4,
          0,
          efficiency};
}

/// Bytes of a tile in half precision: lines of eights, with one eight more each, in the larger of the two
/// layouts.
std::uint32_t half_tile_bytes(std::uint32_t extent, std::uint32_t depth) {
  return 16 * std::max(extent * (depth / 8 + 1), depth * (extent / 8 + 1));
}

TileShape fragment_tile(std::uint32_t lanes, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth,
                        std::uint32_t own_rows, std::uint32_t own_columns, double efficiency) {
  const std::uint32_t subgroups = rows / own_rows * (columns / own_columns);
  return {rows,
          columns,
          depth,
          own_rows,
          own_columns,
          subgroups * lanes,
          half_tile_bytes(rows, depth) + half_tile_bytes(columns, depth),
          subgroups * 1024,
          efficiency};
}

// The model: a GPU of TileSet::units processors, each of which needs `busy` invocations to hide its
// latencies. The unit of time is a multiply-add of one processor.
constexpr double busy = 256;
constexpr std::int64_t shortest_part = 256;

std::int64_t part_depth_of(const TileShape& tile, std::int64_t k, std::int64_t parts) {
  return std::max<std::int64_t>(1, ceil_div(ceil_div(k, parts), tile.depth)) * tile.depth;
}

double time_of(const TileSet& set, const TileShape& tile, std::int64_t items, std::int64_t m, std::int64_t n,
               std::int64_t k, std::int64_t parts) {
  const std::int64_t groups = items * ceil_div(m, tile.rows) * ceil_div(n, tile.columns) * parts;
  const auto per_unit = static_cast<double>(ceil_div(groups, set.units));
  const double at_once = std::max(1.0, busy / tile.invocations);
  const auto depth = static_cast<double>(part_depth_of(tile, k, parts));
  double time = std::max(per_unit, at_once) * tile.rows * tile.columns * depth / tile.efficiency;
  if (parts > 1)
    time += set.per_launch +
            8.0 * static_cast<double>(parts * items * m * n) * set.per_byte / static_cast<double>(set.units);
  return time;
}

}  // namespace

const TileSet& scalar_tiles() {
  static const TileSet set{
      {scalar_tile(128, 128, 8, 8, 1.0), scalar_tile(128, 64, 8, 8, 0.9), scalar_tile(64, 128, 8, 8, 0.9),
       scalar_tile(64, 64, 8, 8, 0.75), scalar_tile(32, 32, 4, 4, 0.35)},
      6,
      0.7e6};
  return set;
}

TileSet fragment_tiles(std::uint32_t lanes) {
  // Subgroups of 64 x 64 outputs read shared memory least but need the most registers; tuning finds out which
  // tile is fastest on a device. The deepest tile takes more than 48 KiB.
  return {{fragment_tile(lanes, 128, 128, 32, 64, 32, 1.0), fragment_tile(lanes, 128, 128, 32, 64, 64, 0.9),
           fragment_tile(lanes, 128, 256, 32, 64, 64, 0.9), fragment_tile(lanes, 128, 256, 64, 64, 64, 0.9),
           fragment_tile(lanes, 64, 64, 32, 32, 32, 0.6)},
          80,
          9e6};
}

std::int64_t MatmulPlan::tiles(std::int64_t m, std::int64_t n) const {
  return ceil_div(m, tile.rows) * ceil_div(n, tile.columns);
}

std::string name_of(const TileShape& tile) {
  return concat_text(tile.rows, " x ", tile.columns, " x ", tile.depth, ", ", tile.own_rows, " x ",
                     tile.own_columns, " each");
}

bool fits(const TileShape& tile, const Limits& limits) {
  return tile.invocations <= limits.max_invocations &&
         tile.stage_bytes + tile.other_bytes <= limits.shared_bytes;
}

std::uint32_t stages_of(const TileShape& tile, const Limits& limits) {
  return 2 * tile.stage_bytes + tile.other_bytes <= limits.shared_bytes ? 2 : 1;
}

MatmulPlan plan_matmul(const TileSet& set, const Limits& limits, std::int64_t items, std::int64_t m,
                       std::int64_t n, std::int64_t k, std::uint64_t longest_scratch) {
  std::optional<MatmulPlan> best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const TileShape& tile : set.tiles) {
    if (!fits(tile, limits)) continue;
    const std::uint32_t stages = stages_of(tile, limits);
    for (const std::int64_t wanted : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      if (wanted > 1 && (k < wanted * shortest_part || wanted > limits.max_groups)) break;
      const std::int64_t depth = part_depth_of(tile, k, wanted);
      const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(k, depth));
      if (parts > 1 && static_cast<std::uint64_t>(parts * items * m * n) * 4 > longest_scratch) break;
      const double time = time_of(set, tile, items, m, n, k, parts);
      if (time >= best_time) continue;
      best_time = time;
      best = {tile, stages, parts, depth};
    }
  }
  check(best.has_value(), "matmul: the device's workgroups hold ", limits.max_invocations,
        " invocations and ", limits.shared_bytes, " bytes of shared memory, too few for any tile");
  return *best;
}

}  // namespace heed::vulkan
