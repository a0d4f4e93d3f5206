#include "heed/backends/cpu/blas.h"

#include <algorithm>

#include "heed/base/error.h"

// OpenBLAS copies ("packs") both operands of every call, so small tiles cost more than large ones; but
// the fewer the tiles, the longer idle threads wait for the last one. The chosen grid minimises the sum
// of both, with figures measured on Zen 4 with the AVX-512 kernels: 93 GFLOP/s if a tile is whole rows
// of C, 88 at 256 x 256, 82 at 64 x 256 or 128 x 128. Sums of 256 terms are as fast as long ones, apart
// from the pass that adds them.

namespace heed::cpu {
namespace {

// Nanoseconds on one thread.
constexpr double per_flop = 0.0105, per_sum = 0.7;  // a sum: adding one element of C to that of another part
// To pack an element. An operand that fits into the second-level cache is cheap to read again,
// unless its rows are far apart.
constexpr double per_cached = 0.1, per_element = 0.5;
constexpr std::int64_t cached = 1 << 18, short_sum = 1024;
// The cost of waiting, as if a product took this many tiles longer. With 3 (and 5 us per tile), 64 threads
// would be 41 instead of 26 times faster in bench_steps' encoder, but one thread 5 % slower.
constexpr double tiles_waited = 1;

constexpr double smallest_tile = 2e6;  // flops, about 20 us
constexpr double flops_at_once = 1e6;  // per task made of several small products
constexpr double smallest_vector =
    128e3;  // flops of a product with a vector: reads a quarter of a megabyte of the matrix
constexpr std::int64_t vector_tasks = 32, few_tasks = 4;
constexpr std::int64_t shortest_side = 64, shortest_part = 256;
constexpr std::int64_t most_pieces = 256;  // of an axis

/// The extent of a piece, a multiple of 16 if there are several.
std::int64_t piece_of(std::int64_t extent, std::int64_t count) {
  return count == 1 ? extent : std::min(extent, ceil_div(ceil_div(extent, count), 16) * 16);
}

double product(std::int64_t a, std::int64_t b, std::int64_t c = 1) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

double packing(std::int64_t extent, std::int64_t k, std::int64_t times) {
  return product(extent, k, times) * (extent * k <= cached && k < short_sum ? per_cached : per_element);
}

}  // namespace

MatmulPlan::MatmulPlan(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k)
    : tile_rows(m), tile_columns(n), part_depth(k), batch(batch), m(m), n(n), k(k) {
  std::min(m, n) < 8 ? cut_vector() : cut_matrix();
  const double tile = std::max(1.0, 2 * product(tile_rows, tile_columns, part_depth));
  tiles_at_once = std::max<std::int64_t>(1, static_cast<std::int64_t>(flops_at_once / tile));
}

void MatmulPlan::set(std::int64_t height, std::int64_t width, std::int64_t depth) {
  tile_rows = height, tile_columns = width, part_depth = depth;
  rows = ceil_div(m, height), columns = ceil_div(n, width), parts = k > 0 ? ceil_div(k, depth) : 1;
}

double MatmulPlan::cost() const {
  const double one = per_flop * 2 * product(m, n, k) + packing(m, k, columns) + packing(n, k, rows) +
                     per_sum * product(m, n, parts - 1);
  return one * static_cast<double>(batch) + tiles_waited * one / product(rows, columns, parts);
}

/// Tries axes whole, halved, quartered, and so on.
void MatmulPlan::cut_matrix() {
  MatmulPlan best = *this;
  double least = cost();
  for (std::int64_t across = 1, width = n; across <= most_pieces; across *= 2) {
    width = piece_of(n, across);
    if (across > 1 && width < shortest_side) break;
    for (std::int64_t down = 1, height = m; down <= most_pieces; down *= 2) {
      height = piece_of(m, down);
      if (down > 1 && height < shortest_side) break;
      for (std::int64_t deep = 1; deep <= most_pieces; deep *= 2) {
        const std::int64_t depth = piece_of(k, deep);
        if (deep > 1 && (depth < shortest_part || 2 * product(height, width, depth) < smallest_tile)) break;
        if (2 * product(height, width, depth) < smallest_tile) break;
        set(height, width, depth);
        if (const double now = cost(); now < least) least = now, best = *this;
      }
    }
  }
  *this = best;
}

/// For a product with one or a few vectors: cuts the longer side, and a long sum if that gives too few tasks.
void MatmulPlan::cut_vector() {
  const double worth = 2 * static_cast<double>(batch) * product(m, n, k) / smallest_vector;
  const auto wanted = static_cast<std::int64_t>(std::min(static_cast<double>(vector_tasks), worth));
  const auto cut = [&](std::int64_t extent, std::int64_t shortest) {
    const std::int64_t most = std::max<std::int64_t>(1, extent / shortest);
    return piece_of(extent, std::clamp<std::int64_t>(wanted / tiles(), 1, most));
  };
  m > n ? set(cut(m, shortest_side), n, k) : set(m, cut(n, shortest_side), k);
  if (tiles() < few_tasks && k > 0) set(tile_rows, tile_columns, cut(k, 4 * shortest_part));
}

}  // namespace heed::cpu
