#include "heed/backends/vulkan/tuning.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/gpu.h"
#include "heed/backends/vulkan/matmul_operands.h"
#include "heed/backends/vulkan/matrix_hardware.h"
#include "heed/backends/vulkan/pipelines.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/core/device.h"

namespace heed::vulkan {

// --- the model: tiles, and the plan that follows from them

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

// The figures assumed until `heed tune` has measured a device are those that it measured on an H100.
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

// --- the file of measured figures

namespace {

using Json = nlohmann::ordered_json;
constexpr std::int64_t longest_file = 1 << 16;

std::filesystem::path tuning_file(const std::string& identity) {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / ("tuning-" + identity + ".json");
}

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

constexpr std::array<std::int64_t, 3> lanes_tried{4, 8, 16}, subgroups_tried{1, 2, 4};

std::int64_t one_of(std::span<const std::int64_t> allowed, const Json& object, const std::string& name) {
  const auto value = object.at(name).get<std::int64_t>();
  check(std::ranges::find(allowed, value) != allowed.end(), '"', name, "\" is ", value,
        ", no size of attention's workgroups");
  return value;
}

// --- measuring

/// Seconds of one call: the median of five rounds, each of enough calls to take about 20 ms, after five more in
/// which an idle device raises its clocks.
double seconds_of(Gpu& gpu, const std::function<void()>& work) {
  const auto timed = [&](int calls) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) work();
    gpu.stream().wait_idle();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
  };
  timed(1);  // compiles
  const int calls = std::clamp(static_cast<int>(0.02 / timed(1)), 1, 1000);
  timed(5 * calls);
  std::array<double, 5> rounds;
  for (double& round : rounds) round = timed(calls);
  std::ranges::sort(rounds);
  return rounds[2];
}

/// Measures the multiply-adds per second of square products with a tile, at the smallest size (a power of
/// two, up to 4096, whose tiles one dispatch holds on any device) at which a product takes 10 ms.
class ProductRate {
 public:
  ProductRate(Gpu& gpu, TileKernel kernel, DType dtype) : gpu_(gpu), kernel_(kernel), dtype_(dtype) {}

  double of(const TileShape& tile) {
    while (size_ < 4096 && seconds(tile, size_) < 0.01) size_ *= 2;
    return static_cast<double>(size_) * static_cast<double>(size_) * static_cast<double>(size_) /
           seconds(tile, size_);
  }

 private:
  double seconds(const TileShape& tile, std::int64_t size) const {
    const Device device{DeviceType::vulkan, gpu_.index()};
    const Tensor a = Tensor::zeros({1, 1, size, size}, dtype_, device),
                 b = Tensor::zeros({1, 1, size, size}, dtype_, device),
                 out = Tensor::empty({1, 1, size, size}, dtype_, device);
    const MatmulPlan plan{tile, stages_of(tile, gpu_.limits()), 1, ceil_div(size, tile.depth) * tile.depth};
    return seconds_of(gpu_, [&] {
      multiply_tiles(gpu_, kernel_, tiled({a, b, {}, out, false, {}}, kernel_, {}), plan);
    });
  }

  Gpu& gpu_;
  TileKernel kernel_;
  DType dtype_;
  std::int64_t size_ = 128;
};

/// Bytes per second that a copy of 16 MiB reads and writes.
double memory_rate(Gpu& gpu) {
  const Device device{DeviceType::vulkan, gpu.index()};
  const Tensor from = Tensor::zeros({4 << 20}, DType::f32, device),
               to = Tensor::empty({4 << 20}, DType::f32, device);
  return 2 * 4.0 * (4 << 20) / seconds_of(gpu, [&] { copy(from, to); });
}

double launch_seconds(Gpu& gpu) {
  const Device device{DeviceType::vulkan, gpu.index()};
  const Tensor one = Tensor::zeros({1}, DType::f32, device), other = Tensor::zeros({1}, DType::f32, device);
  return seconds_of(gpu,
                    [&] {
                      for (int i = 0; i < 50; ++i) copy(one, other), copy(other, one);
                    }) /
         100;
}

void measure(Gpu& gpu, TileKernel kernel, DType dtype, TileSet& set) {
  ProductRate rate(gpu, kernel, dtype);
  double best = 0;
  for (TileShape& tile : set.tiles) {
    if (!fits(tile, gpu.limits())) continue;  // it is never chosen
    tile.efficiency = rate.of(tile);
    best = std::max(best, tile.efficiency);
  }
  for (TileShape& tile : set.tiles)
    if (fits(tile, gpu.limits())) tile.efficiency /= best;
  set.per_byte = best / memory_rate(gpu);
  set.per_launch = best / static_cast<double>(set.units) * launch_seconds(gpu);
}

/// Measures the seconds of attention, forward and backward, with a given tuning, at a length at which it
/// takes 10 ms with the device's own tuning (at most 4096).
class AttentionTime {
 public:
  AttentionTime(Gpu& gpu, DType dtype) : gpu_(gpu), dtype_(dtype) {
    while (length_ < 4096 && of(gpu.tuning().attention) < 0.01) length_ *= 2;
  }

  double of(const AttentionTuning& tried) const {
    struct Restored {
      Gpu& gpu;
      AttentionTuning before = gpu.tuning().attention;
      ~Restored() { gpu.use(before); }
    } const restored{gpu_};
    gpu_.use(tried);
    const Device device{DeviceType::vulkan, gpu_.index()};
    const Shape shape{1, 8, length_, 64};
    const Tensor x = Tensor::zeros(shape, dtype_, device), out = Tensor::empty(shape, dtype_, device),
                 sums = Tensor::empty({1, 8, length_, 2}, DType::f32, device);
    AttentionArgs args;
    args.query = args.key = args.value = x;
    const std::array gradients{Tensor::empty(shape, dtype_, device), Tensor::empty(shape, dtype_, device),
                               Tensor::empty(shape, dtype_, device)};
    return seconds_of(gpu_, [&] {
      attention_forward(args, out, sums);
      attention_backward(args, out, sums, x, {}, gradients[0], gradients[1], gradients[2], {});
    });
  }

 private:
  Gpu& gpu_;
  DType dtype_;
  std::int64_t length_ = 128;
};

/// Sets `size`, a member of `best`, to the value in `tried` with which attention is fastest.
void measure(Gpu& gpu, DType dtype, std::span<const std::int64_t> tried, AttentionTuning& best,
             std::int64_t AttentionTuning::*size) {
  const AttentionTime time(gpu, dtype);
  double least = std::numeric_limits<double>::infinity();
  for (const std::int64_t candidate : tried) {
    AttentionTuning with = best;
    with.*size = candidate;
    const double seconds = time.of(with);
    if (seconds < least) best = with, least = seconds;
  }
}

}  // namespace

Tuning tuning_of(const PhysicalDevice& device) {
  Tuning tuning{scalar_tiles(), fragment_tiles(device.capabilities.subgroup_size), {}, ""};
  if (device.processors > 0) tuning.scalar.units = tuning.fragments.units = device.processors;
  const std::filesystem::path file = tuning_file(device.identity);
  if (file.empty() || !path_exists(file)) return tuning;
  try {
    Json figures = parse_json<Json>(read_file(file, longest_file), "it");
    const std::string digest = figures.at("digest").get<std::string>();
    check(take_digest(figures), "its digest is not that of its content");
    check(figures.at("device") == device.identity, "it was made for another device or driver");
    read_tiles(figures.at("scalar"), tuning.scalar);
    read_tiles(figures.at("fragments"), tuning.fragments);
    const Json& attention = figures.at("attention");
    tuning.attention = {one_of(lanes_tried, attention, "lanes"),
                        one_of(subgroups_tried, attention, "subgroups")};
    tuning.digest = digest;
  } catch (const std::exception& error) {
    fail("the tuning of ", device.name, " in ", file, " cannot be used: ", error.what(),
         "; remove that file (`heed tune` makes a new one)");
  }
  return tuning;
}

std::filesystem::path tune(Gpu& gpu) {
  const std::filesystem::path file = tuning_file(gpu.identity());
  check(!file.empty(), "there is no folder to keep the tuning in: set HEED_CACHE_DIR");
  const std::lock_guard lock(gpu.mutex());
  TileSet scalar = scalar_tiles(), fragments = fragment_tiles(gpu.capabilities().subgroup_size);
  scalar.units = fragments.units = gpu.tuning().scalar.units;
  measure(gpu, TileKernel::scalar, DType::f32, scalar);
  const MatrixHardware& hardware = matrix_hardware({DeviceType::vulkan, gpu.index()});
  AttentionTuning attention;
  measure(gpu, DType::f32, lanes_tried, attention, &AttentionTuning::lanes);
  if (hardware.f16 || hardware.bf16) {
    const DType half = hardware.f16 ? DType::f16 : DType::bf16;
    measure(gpu, TileKernel::cooperative, half, fragments);
    measure(gpu, half, subgroups_tried, attention, &AttentionTuning::subgroups);
  }
  Json figures = {{"device", gpu.identity()},
                  {"name", gpu.name()},
                  {"scalar", json_of(scalar)},
                  {"fragments", json_of(fragments)},
                  {"attention", {{"lanes", attention.lanes}, {"subgroups", attention.subgroups}}}};
  add_digest(figures);
  std::filesystem::create_directories(file.parent_path());
  write_file_atomically(file, figures.dump(2) + "\n");
  return file;
}

}  // namespace heed::vulkan

namespace heed {

std::filesystem::path tune_device(Device device) {
  check(device.type == DeviceType::vulkan, "tune: ", device, " has nothing to tune; name a Vulkan device");
  return vulkan::tune(vulkan::gpu(device.index));
}

}  // namespace heed
