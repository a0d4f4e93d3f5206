#include "heed/backends/vulkan/tuning.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"

namespace heed::vulkan {

// --- the model: tiles, and the plan that follows from them

namespace {

constexpr TileShape scalar_tile(std::uint32_t rows, std::uint32_t columns, std::uint32_t own_rows,
                                std::uint32_t own_columns, double efficiency) {
  constexpr std::uint32_t depth = 16;
  const std::uint32_t invocations = rows * columns / (own_rows * own_columns),
                      stage_bytes = depth * (rows + columns + 8) * 4;
  return {rows, columns, depth, own_rows, own_columns, invocations, stage_bytes, 0, efficiency};
}

/// Bytes of a tile in half precision: lines of eights, with one eight more each, in the larger of the two
/// layouts.
std::uint32_t half_tile_bytes(std::uint32_t extent, std::uint32_t depth) {
  return 16 * std::max(extent * (depth / 8 + 1), depth * (extent / 8 + 1));
}

TileShape fragment_tile(std::uint32_t lanes, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth,
                        std::uint32_t own_rows, std::uint32_t own_columns, double efficiency) {
  const std::uint32_t subgroups = rows / own_rows * (columns / own_columns),
                      stage_bytes = half_tile_bytes(rows, depth) + half_tile_bytes(columns, depth);
  return {rows,        columns,          depth,     own_rows, own_columns, subgroups * lanes,
          stage_bytes, subgroups * 1024, efficiency};
}

// The model: a GPU of TileSet::units processors, each of which needs `busy` invocations to hide its
// latencies. The unit of time is a multiply-add of one processor.
constexpr double busy = 256;
constexpr std::int64_t shortest_part = 256;

std::int64_t divide_depth(const TileShape& tile, std::int64_t k, std::int64_t parts) {
  return std::max<std::int64_t>(1, ceil_div(ceil_div(k, parts), tile.depth)) * tile.depth;
}

double time_work(const TileSet& set, const TileShape& tile, std::int64_t items, std::int64_t m,
                 std::int64_t n, std::int64_t k, std::int64_t parts) {
  const std::int64_t groups = items * ceil_div(m, tile.rows) * ceil_div(n, tile.columns) * parts;
  const auto per_unit = static_cast<double>(ceil_div(groups, set.units));
  const double at_once = std::max(1.0, busy / tile.invocations);
  const auto depth = static_cast<double>(divide_depth(tile, k, parts));
  double time = std::max(per_unit, at_once) * tile.rows * tile.columns * depth / tile.efficiency;
  if (parts > 1)
    time += set.per_launch +
            8.0 * static_cast<double>(parts * items * m * n) * set.per_byte / static_cast<double>(set.units);
  return time;
}

}  // namespace

// The figures assumed until `heed tune-gpu` has measured a device are those that it measured on an H100.
const TileSet& scalar_tiles() {
  static const TileSet set{
      {scalar_tile(128, 128, 8, 8, 1.0), scalar_tile(128, 64, 8, 8, 0.63), scalar_tile(64, 128, 8, 8, 0.64),
       scalar_tile(64, 64, 8, 8, 0.59), scalar_tile(32, 32, 4, 4, 0.68)},
      4.6,
      0.31e6};
  return set;
}

TileSet fragment_tiles(std::uint32_t lanes) {
  // Subgroups of 64 x 64 outputs read shared memory least but need the most registers; tuning finds out which
  // tile is fastest on a device. The deepest tile takes more than 48 KiB, so the H100 did not run it.
  return {{fragment_tile(lanes, 128, 128, 32, 64, 32, 0.75), fragment_tile(lanes, 128, 128, 32, 64, 64, 0.59),
           fragment_tile(lanes, 128, 256, 32, 64, 64, 1.0), fragment_tile(lanes, 128, 256, 64, 64, 64, 0.9),
           fragment_tile(lanes, 64, 64, 32, 32, 32, 0.48)},
          24,
          1.7e6};
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

std::uint32_t stage_count(const TileShape& tile, const Limits& limits) {
  return 2 * tile.stage_bytes + tile.other_bytes <= limits.shared_bytes ? 2 : 1;
}

MatmulPlan plan_matmul(const TileSet& set, const Limits& limits, std::int64_t items, std::int64_t m,
                       std::int64_t n, std::int64_t k, std::uint64_t longest_scratch) {
  std::optional<MatmulPlan> best;
  double best_time = std::numeric_limits<double>::infinity();
  for (const TileShape& tile : set.tiles) {
    if (!fits(tile, limits)) continue;
    const std::uint32_t stages = stage_count(tile, limits);
    for (const std::int64_t wanted : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      if (wanted > 1 && (k < wanted * shortest_part || wanted > limits.max_groups)) break;
      const std::int64_t depth = divide_depth(tile, k, wanted);
      const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(k, depth));
      if (parts > 1 && static_cast<std::uint64_t>(parts * items * m * n) * 4 > longest_scratch) break;
      const double time = time_work(set, tile, items, m, n, k, parts);
      if (time >= best_time) continue;
      best_time = time;
      best = {tile, stages, parts, depth};
    }
  }
  check(best.has_value(), "matmul: the device's workgroups hold ", limits.max_invocations,
        " invocations and ", limits.shared_bytes, " bytes of shared memory, too few for any tile");
  return *best;
}

// --- the file of measured figures

namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t longest_file = 1 << 16;

double positive(const Json& object, const std::string& name) {
  const double value = object.at(name).get<double>();
  check(std::isfinite(value) && value > 0, '"', name, "\" is ", value, "; it must be positive");
  return value;
}

Json json_of(const TileSet& set) {
  Json efficiency;
  for (const TileShape& tile : set.tiles) efficiency[name_of(tile)] = tile.efficiency;
  return {{"per_byte", set.per_byte}, {"per_launch", set.per_launch}, {"efficiency", efficiency}};
}

void read_tiles(const Json& object, TileSet& set) {
  set.per_byte = positive(object, "per_byte");
  set.per_launch = positive(object, "per_launch");
  const Json& efficiency = object.at("efficiency");
  check(efficiency.size() == set.tiles.size(), "it has ", efficiency.size(), " tiles instead of ",
        set.tiles.size());
  for (TileShape& tile : set.tiles) tile.efficiency = positive(efficiency, name_of(tile));
}

std::int64_t read_choice(std::span<const std::int64_t> allowed, const Json& object, const std::string& name) {
  const auto value = object.at(name).get<std::int64_t>();
  check(std::ranges::find(allowed, value) != allowed.end(), '"', name, "\" is ", value,
        ", which is not a size of attention's workgroups");
  return value;
}

}  // namespace

std::filesystem::path tuning_file(const std::string& identity) {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / ("tuning-" + identity + ".json");
}

std::string tuning_text(const Tuning& tuning, const std::string& identity, const std::string& name) {
  Json figures = {
      {"device", identity},
      {"name", name},
      {"scalar", json_of(tuning.scalar)},
      {"fragments", json_of(tuning.fragments)},
      {"attention", {{"lanes", tuning.attention.lanes}, {"subgroups", tuning.attention.subgroups}}}};
  add_digest(figures);
  return figures.dump(2) + "\n";
}

Tuning load_tuning(const PhysicalDevice& device) {
  Tuning tuning{scalar_tiles(), fragment_tiles(device.capabilities.subgroup_size), {}, ""};
  if (device.processors > 0) tuning.scalar.units = tuning.fragments.units = device.processors;
  const std::filesystem::path file = tuning_file(device.identity);
  if (file.empty() || !path_exists(file)) return tuning;
  try {
    Json figures = parse_json<Json>(read_file(file, longest_file), "it");
    const std::string digest = figures.at("digest").get<std::string>();
    check(remove_matching_digest(figures), "its digest does not match its content");
    check(figures.at("device") == device.identity, "it was made for another device or driver");
    read_tiles(figures.at("scalar"), tuning.scalar);
    read_tiles(figures.at("fragments"), tuning.fragments);
    const Json& attention = figures.at("attention");
    tuning.attention = {read_choice(attention_lanes, attention, "lanes"),
                        read_choice(attention_subgroups, attention, "subgroups")};
    tuning.digest = digest;
  } catch (const std::exception& error) {
    fail("the tuning of ", device.name, " in ", file, " cannot be used: ", error.what(),
         "; remove that file (`heed tune-gpu` makes a new one)");
  }
  return tuning;
}

}  // namespace heed::vulkan
