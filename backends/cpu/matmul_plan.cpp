#include "heed/backends/cpu/matmul_plan.h"

#include <algorithm>
#include <limits>

#include "heed/core/checked.h"

// OpenBLAS copies ("packs") both operands of every call, so that small tiles cost more. Measured on Zen 4 with the
// kernels for AVX-512, one thread: 93 GFLOP/s where a tile is whole rows of C, 88 at 256 x 256, 82 at 64 x 256 or 128 x
// 128; sums of 256 terms and more are as fast as long ones.

namespace heed::cpu {
namespace {

constexpr std::int64_t many_tasks =
    32;                               // of a large product: two of them, or one halved, keep 64 threads busy
constexpr double worth_a_task = 8e6;  // flops of a tile, some 80 us
constexpr double smallest_tile = 1.2e6;  // flops, some 12 us: products between the two are cut into a few
constexpr std::int64_t few_tasks = 4;
constexpr double largest_tile = 3e8;   // flops: what a thread does between two looks at the loop
constexpr double flops_at_once = 1e6;  // of a task made of several tiles
constexpr std::int64_t shortest_side = 64, shortest_part = 256;
constexpr std::int64_t pieces[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};

/// The extent of a piece, a multiple of 16 where there are several.
std::int64_t piece_of(std::int64_t extent, std::int64_t count) {
  return count == 1 ? extent : std::min(extent, ceil_div(ceil_div(extent, count), 16) * 16);
}

}  // namespace

MatmulPlan::MatmulPlan(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k)
    : tile_rows(m), tile_columns(n), part_depth(k), batch(batch), m(m), n(n), k(k) {
  if (std::min(m, n) < 8) {
    // Bound by memory: a quarter of a megabyte of the matrix is worth a task.
    cut_vector(std::min<double>(many_tasks, flops() / (2.0 * 64e3)));
  } else {
    const double all = flops();
    cut_matrix(std::max({std::min<double>(many_tasks, all / worth_a_task),
                         std::min<double>(few_tasks, all / smallest_tile), all / largest_tile}));
  }
  const double tile = 2.0 * static_cast<double>(tile_rows) * static_cast<double>(tile_columns) *
                      static_cast<double>(part_depth);
  tiles_at_once = std::max<std::int64_t>(1, static_cast<std::int64_t>(flops_at_once / std::max(tile, 1.0)));
}

double MatmulPlan::flops() const {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(m) * static_cast<double>(n) *
         static_cast<double>(k);
}

void MatmulPlan::set(std::int64_t height, std::int64_t width, std::int64_t depth) {
  tile_rows = height, tile_columns = width, part_depth = depth;
  rows = ceil_div(m, height), columns = ceil_div(n, width), parts = k > 0 ? ceil_div(k, depth) : 1;
}

/// Of the grids with as many tiles as wanted the one that copies least, or that with the most tiles.
void MatmulPlan::cut_matrix(double wanted) {
  // Nanoseconds for an element of a and of b to be packed, and for one of C to be added to another part of the sum.
  constexpr double pack_a = 0.5, pack_b = 0.1, add_part = 0.3;
  double best_tiles = 0, least = std::numeric_limits<double>::infinity();
  const auto area = static_cast<double>(m) * static_cast<double>(n);
  std::int64_t best[3] = {m, n, k};
  for (const std::int64_t across : pieces) {
    const std::int64_t width = piece_of(n, across);
    if (across > 1 && width < shortest_side) break;
    for (const std::int64_t down : pieces) {
      const std::int64_t height = piece_of(m, down);
      if (down > 1 && height < shortest_side) break;
      const std::int64_t grid = batch * ceil_div(m, height) * ceil_div(n, width);
      const auto missing = static_cast<std::int64_t>(wanted / static_cast<double>(grid) + 0.5);
      const std::int64_t depth =
          piece_of(k, std::clamp<std::int64_t>(missing, 1, std::max<std::int64_t>(1, k / shortest_part)));
      const std::int64_t cuts = depth > 0 ? ceil_div(k, depth) : 1;
      const double tiles = std::min(static_cast<double>(grid * cuts), wanted);
      const double cost = static_cast<double>(k) * (pack_a * static_cast<double>(m * ceil_div(n, width)) +
                                                    pack_b * static_cast<double>(n * ceil_div(m, height))) +
                          add_part * area * static_cast<double>(cuts - 1);
      // A few tiles less than wanted are as good, but for half of them the threads would stand still.
      if (tiles > 1.25 * best_tiles || (tiles > 0.8 * best_tiles && cost < least)) {
        best_tiles = std::max(tiles, best_tiles), least = cost;
        best[0] = height, best[1] = width, best[2] = depth;
      }
      if (static_cast<double>(grid) >= wanted) break;
    }
  }
  set(best[0], best[1], best[2]);
}

/// Of a product with a vector, or a few, the long side is cut; a long sum where there is no other.
void MatmulPlan::cut_vector(double wanted) {
  const auto missing = [&] { return std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted) / tiles()); };
  const auto cut = [&](std::int64_t extent, std::int64_t shortest) {
    return piece_of(extent,
                    std::clamp<std::int64_t>(missing(), 1, std::max<std::int64_t>(1, extent / shortest)));
  };
  m > n ? set(cut(m, shortest_side), n, k) : set(m, cut(n, shortest_side), k);
  if (tiles() < few_tasks && k > 0) set(tile_rows, tile_columns, cut(k, 4 * shortest_part));
}

}  // namespace heed::cpu
