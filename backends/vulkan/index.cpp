#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"
#include "heed/base/error.h"

namespace heed::vulkan {

/// [batch, n, width] as [batch n, width].
static Tensor flat_rows(const Tensor& x) {
  return x.view({x.size(0) * x.size(1), x.size(2)});
}

static std::string out_of_range(const char* op, std::int64_t rows) {
  return concat_text(op, ": an index is outside [0, ", rows, ") and is not -1");
}

void gather_rows(const Tensor& x, const Tensor& index, const Tensor& out) {
  if (out.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t n = x.size(1), m = index.size(1), width = x.size(2);
  const std::uint32_t workgroup = workgroup_size(gpu);
  const std::int64_t per_group = 4 * workgroup;  // elements
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const std::int64_t most_sources = most_elements(gpu, width * element);
  const Tensor all_sources = flat_rows(x), positions = index.view({index.count()}), rows = flat_rows(out);

  const auto from = [&](std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
    const std::int64_t count = (end - begin) * width;
    Launch(gpu, shader_name_by_size("gather_rows", x.dtype()), {workgroup})
        .read(row_range(all_sources, first, last), row_range(positions, begin, end))
        .write(row_range(rows, begin, end))
        .reports_errors(out_of_range("gather_rows", n))
        .push(begin, count, n, m, width, first, last)
        .work(0, 2.0 * static_cast<double>(count * element))
        .folded_groups(ceil_div(count, per_group));
  };
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    // The rows of x in these batch entries, as many at a time as can be bound.
    const std::int64_t lowest = begin / m * n, highest = ceil_div(end, m) * n;
    if (highest - lowest <= most_sources) return from(begin, end, lowest, highest);
    for (std::int64_t first = lowest; first < highest; first += most_sources)
      from(begin, end, first, std::min(highest, first + most_sources));
  };
  for_row_ranges(gpu, index.count(), width * element, width, per_group, each);
}

/// Up to this many rows it is cheaper to search for those with the same target than to sort.
constexpr std::int64_t searched_rows = 64;

/// `first_position` is the number of indices before this part of the call.
static void scatter(Gpu& gpu, const Tensor& x, const Tensor& index, const Tensor& out,
                    std::int64_t first_position) {
  const std::int64_t batch = x.size(0), m = x.size(1), width = x.size(2), n = out.size(1);
  const std::uint32_t workgroup = workgroup_size(gpu);
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const bool fits = x.count() <= most_elements(gpu, element) && x.count() <= most_groups(gpu) * workgroup;
  if (!fits && batch > 1) {
    for (const Part part : halves(batch))
      scatter(gpu, narrowed(x, 0, part), narrowed(index, 0, part), narrowed(out, 0, part),
              first_position + part.first * m);
    return;
  }
  if (!fits && m > 1) {  // one half after the other, so that rows are still added in order
    for (const Part part : halves(m))
      scatter(gpu, narrowed(x, 1, part), narrowed(index, 1, part), out, first_position + part.first);
    return;
  }

  Tensor order;
  if (m > searched_rows) {
    order = Tensor::empty({batch, m}, DType::i32, x.device());
    argsort(index, false, order);
  }
  const Tensor targets = flat_rows(out);
  const std::int64_t most_targets = most_elements(gpu, width * element);
  std::int64_t first = 0;
  do {  // runs even without targets, since indices are checked
    const std::int64_t last = std::min(batch * n, first + most_targets);
    Launch(gpu, shader_name("scatter_add_rows", x.dtype()), {workgroup, order.defined()})
        .read(x, index, order)
        .update(row_range(targets, first, last))
        .reports_errors(out_of_range("scatter_add_rows", n))
        .push(first_position, x.count(), n, m, width, first, last)
        .work(0, 3.0 * static_cast<double>(x.count() * element))
        .folded_groups(ceil_div(x.count(), workgroup));
    first = last;
  } while (first < batch * n);
}

void scatter_add_rows(const Tensor& x, const Tensor& index, const Tensor& out) {
  check(is_floating(x.dtype()), "scatter_add_rows: dtype ", x.dtype(), " is not supported; use f32");
  if (x.count() > 0) scatter(gpu_of(x), x, index, out, 0);
}

// Rows are sorted as entries (key, position), which are all different: tiles are sorted in shared memory,
// then neighbouring runs are merged. For the k largest, each tile keeps its own k largest until only one tile
// is left.

namespace {

/// Entries of rows, [rows, n]; keys are undefined if only the positions are wanted.
struct Entries {
  Tensor keys, positions;
};

Entries empty_entries(std::int64_t rows, std::int64_t n, Device device) {
  return {Tensor::empty({rows, n}, DType::i32, device), Tensor::empty({rows, n}, DType::i32, device)};
}

/// The most entries of one tile: a power of two that fits half of the shared memory.
std::int64_t largest_tile(const Gpu& gpu) {
  const std::uint32_t bytes_per_entry = 8;
  return std::bit_floor(std::clamp(gpu.limits().shared_bytes / 2 / bytes_per_entry, 2u, 2048u));
}

std::int64_t tile_for(const Gpu& gpu, std::int64_t n) {
  const auto whole = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
  return std::clamp<std::int64_t>(whole, 2, largest_tile(gpu));
}

/// The input of a pass over tiles: values, or the entries that an earlier pass wrote.
struct TileSource {
  Tensor values;  ///< [rows, n]
  Entries entries;
  bool descending;
};

/// Writes the first `keep` entries of each sorted tile, one tile after another. Keys are written only if `to`
/// has them.
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
      .read(source.values, source.entries.keys, source.entries.positions)
      .write(either(to.keys, to.positions), to.positions)
      .push(rows * per_row, per_row, n, keep, to.positions.size(1))
      .work(0, 8.0 * static_cast<double>(any.count()))
      .folded_groups(ceil_div(rows * per_row, at_once));
}

/// Merges sorted runs into runs of twice the length; `to` may have room for only the first entries of each
/// row.
void merge_runs(Gpu& gpu, const Entries& from, std::int64_t run, const Entries& to) {
  const std::uint32_t workgroup = workgroup_size(gpu);
  Launch(gpu, "sort_merge", {workgroup, to.keys.defined()})
      .read(from.keys, from.positions)
      .write(either(to.keys, to.positions), to.positions)
      .push(from.keys.count(), from.keys.size(1), run, to.positions.size(1))
      .work(0, 16.0 * static_cast<double>(from.keys.count()))
      .folded_groups(ceil_div(from.keys.count(), workgroup));
}

/// Writes the first out.size(1) positions of each sorted row.
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
