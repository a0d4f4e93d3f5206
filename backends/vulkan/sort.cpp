#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/rows.h"
#include "heed/core/error.h"

// Rows are sorted as entries (key, position), all different: tiles in shared memory, then neighbouring runs
// are merged. For the k largest each tile keeps its own k largest, until one tile is left.

namespace heed::vulkan {

namespace {

/// Entries of rows, [rows, n]; keys undefined where they are still the values.
struct Entries {
  Tensor keys, positions;
};

Entries empty_entries(std::int64_t rows, std::int64_t n, Device device) {
  return {Tensor::empty({rows, n}, DType::i32, device), Tensor::empty({rows, n}, DType::i32, device)};
}

/// Entries of one tile: a power of two whose entries fit half of the shared memory.
std::int64_t largest_tile(const Gpu& gpu) {
  const std::uint32_t bytes_per_entry = 8;
  return std::bit_floor(std::clamp(gpu.limits().shared_bytes / 2 / bytes_per_entry, 2u, 2048u));
}

std::int64_t tile_for(const Gpu& gpu, std::int64_t n) {
  const auto whole = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
  return std::clamp<std::int64_t>(whole, 2, largest_tile(gpu));
}

/// What a pass over tiles reads: values, or the entries that an earlier pass wrote.
struct TileSource {
  Tensor values;  ///< [rows, n]
  Entries entries;
  bool descending;
};

/// The first `keep` entries of every sorted tile, one tile after the other. Keys are written
/// where `to` has them.
void sort_tiles(Gpu& gpu, const TileSource& source, std::int64_t tile, std::int64_t keep, const Entries& to) {
  const Tensor& any = source.values.defined() ? source.values : source.entries.keys;
  const std::int64_t rows = any.size(0), n = any.size(1), per_row = ceil_div(n, tile);
  const std::int64_t at_once = std::clamp<std::int64_t>(
      512 / tile, 1, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows * per_row))));
  const auto pairs = static_cast<std::uint32_t>(tile * at_once / 2);
  const DType dtype = source.values.defined() ? source.values.dtype() : DType::i32;
  Launch(gpu, shader_name("sort_tile", dtype),
         {std::min(workgroup_size(gpu, 512), pairs), static_cast<std::uint32_t>(tile),
          static_cast<std::uint32_t>(at_once), source.values.defined(), source.descending, to.keys.defined()})
      .read(source.values)
      .read(source.entries.keys)
      .read(source.entries.positions)
      .write(either(to.keys, to.positions))
      .write(to.positions)
      .push(rows * per_row)
      .push(per_row)
      .push(n)
      .push(keep)
      .push(to.positions.size(1))
      .work(0, 8.0 * static_cast<double>(any.count()))
      .folded_groups(ceil_div(rows * per_row, at_once));
}

/// Sorted runs become runs of twice the length; `to` has room for the first entries of each row.
void merge_runs(Gpu& gpu, const Entries& from, std::int64_t run, const Entries& to) {
  const std::uint32_t workgroup = workgroup_size(gpu);
  Launch(gpu, "sort_merge", {workgroup, to.keys.defined()})
      .read(from.keys)
      .read(from.positions)
      .write(either(to.keys, to.positions))
      .write(to.positions)
      .push(from.keys.count())
      .push(from.keys.size(1))
      .push(run)
      .push(to.positions.size(1))
      .work(0, 16.0 * static_cast<double>(from.keys.count()))
      .folded_groups(ceil_div(from.keys.count(), workgroup));
}

/// The first out.size(1) positions of each sorted row.
void argsort_rows(Gpu& gpu, const Tensor& x, bool descending, const Tensor& out) {
  const std::int64_t rows = x.size(0), n = x.size(1), tile = tile_for(gpu, n);
  const TileSource source{x, {}, descending};
  if (n <= tile) return sort_tiles(gpu, source, tile, out.size(1), {Tensor(), out});
  Entries from = empty_entries(rows, n, x.device());
  sort_tiles(gpu, source, tile, tile, from);
  Entries to;
  for (std::int64_t run = tile; run < n; run *= 2) {
    const bool last = 2 * run >= n;
    if (!last && !to.keys.defined()) to = empty_entries(rows, n, x.device());
    merge_runs(gpu, from, run, last ? Entries{Tensor(), out} : to);
    std::swap(from, to);
  }
}

/// k is at most half of the largest tile, so that every pass at least halves the entries.
void top_k_rows(Gpu& gpu, const Tensor& x, const Tensor& out) {
  const std::int64_t rows = x.size(0), k = out.size(1);
  TileSource source{x, {}, true};
  std::int64_t n = x.size(1);
  for (std::int64_t tile = tile_for(gpu, n); n > tile; tile = tile_for(gpu, n)) {
    const std::int64_t full_tiles = n / tile, rest = n % tile;
    n = full_tiles * k + std::min(k, rest);
    const Entries best = empty_entries(rows, n, x.device());
    sort_tiles(gpu, source, tile, k, best);
    source = {Tensor(), best, true};
  }
  sort_tiles(gpu, source, tile_for(gpu, n), k, {Tensor(), out});
}

template <class Body>
void for_sorted_rows(Gpu& gpu, const Tensor& x, Body body) {
  for_row_ranges(gpu, x.size(0), 4 * x.size(1), x.size(1), workgroup_size(gpu), body);
}

}  // namespace

void argsort(const Tensor& x, bool descending, const Tensor& out) {
  if (x.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  for_sorted_rows(gpu, x, [&](std::int64_t begin, std::int64_t end) {
    argsort_rows(gpu, row_range(x, begin, end), descending, row_range(out, begin, end));
  });
}

void top_k(const Tensor& x, const Tensor& out) {
  const std::int64_t n = x.size(1), k = out.size(1);
  check(k <= n, "top_k: k = ", k, " exceeds the ", n, " values of a row");
  if (out.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  for_sorted_rows(gpu, x, [&](std::int64_t begin, std::int64_t end) {
    const Tensor rows = row_range(x, begin, end), to = row_range(out, begin, end);
    const bool tiles_shrink = 2 * k <= largest_tile(gpu);
    tiles_shrink ? top_k_rows(gpu, rows, to) : argsort_rows(gpu, rows, true, to);
  });
}

}  // namespace heed::vulkan
