#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

#include "heed/backends/cpu/operands.h"
#include "heed/base/error.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

// Sums add short blocks in the tensor's own type and the blocks in double (int64 for i32), so that the
// error does not grow with the extent. Blocks, chunks and tiles depend only on the shape.

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;

/// A sum in the tensor's type. Throws an Error for one of i32 that does not fit.
template <class T>
T narrowed(Wide<T> sum) {
  if constexpr (!std::is_floating_point_v<T>)
    check(sum >= std::numeric_limits<T>::min() && sum <= std::numeric_limits<T>::max(), "sum: ", sum,
          " does not fit in i32; convert the tensor to f64 first");
  return static_cast<T>(sum);
}

constexpr std::int64_t task_size = 32768;   // elements worth a task of their own
constexpr std::int64_t block_size = 1024;   // elements of a row summed in the tensor's type
constexpr std::int64_t chunk_size = 65536;  // elements of a long row summed by one task
constexpr std::int64_t tile_width = 256;    // columns whose sums stay in the first-level cache

template <class T>
T block_sum(const T* x, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, x + i));
    b = hn::Add(b, hn::LoadU(d, x + i + lanes));
    c = hn::Add(c, hn::LoadU(d, x + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) a = hn::Add(a, hn::LoadU(d, x + i));
  if (i < count) b = hn::Add(b, load_n(d, x + i, count - i));
  return lane_sum(d, hn::Add(hn::Add(a, b), hn::Add(c, e)));
}

template <class T>
Wide<T> row_sum(const T* x, std::int64_t count) {
  if constexpr (!std::is_floating_point_v<T>) return std::accumulate(x, x + count, Wide<T>{0});
  Wide<T> sum = 0;
  for (std::int64_t i = 0; i < count; i += block_size)
    sum += block_sum(x + i, std::min(block_size, count - i));
  return sum;
}

/// x [rows, n], out [rows].
template <class T>
void sum_rows(const T* x, std::int64_t rows, std::int64_t n, T* out) {
  if (n <= chunk_size) {
    parallel_ranges(rows, pieces_per_task(task_size, n), [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      for (std::int64_t row = begin; row < end; ++row) out[row] = narrowed<T>(row_sum(x + row * n, n));
    });
    return;
  }
  const std::int64_t chunks = ceil_div(n, chunk_size);
  std::vector<Wide<T>> partial(static_cast<std::size_t>(rows * chunks));
  parallel_for(rows * chunks, [&](std::int64_t task) HWY_ATTR {
    const std::int64_t row = task / chunks, begin = task % chunks * chunk_size;
    partial[static_cast<std::size_t>(task)] = row_sum(x + row * n + begin, std::min(chunk_size, n - begin));
  });
  for (std::int64_t row = 0; row < rows; ++row) {
    Wide<T> sum = 0;
    for (std::int64_t i = 0; i < chunks; ++i) sum += partial[static_cast<std::size_t>(row * chunks + i)];
    out[row] = narrowed<T>(sum);
  }
}

/// Adds eight rows at a time in T, so that additions in double are rare. x [n, stride], sum [width].
template <class T>
void add_columns(const T* x, std::int64_t n, std::int64_t stride, std::int64_t width, Wide<T>* sum) {
  if constexpr (!std::is_floating_point_v<T>) {  // eight of them may not fit in T
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t j = 0; j < width; ++j) sum[j] += x[row * stride + j];
    return;
  }
  const hn::ScalableTag<Wide<T>> dw;
  const hn::Rebind<T, decltype(dw)> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < n; row += 8) {
    const std::int64_t rows = std::min<std::int64_t>(8, n - row);
    const T* top = x + row * stride;
    std::int64_t j = 0;
    for (; j + lanes <= width; j += lanes) {
      const T* column = top + j;
      hn::Vec<decltype(d)> total;
      if (rows == 8) {
        const auto s01 = hn::Add(hn::LoadU(d, column), hn::LoadU(d, column + stride));
        const auto s23 = hn::Add(hn::LoadU(d, column + 2 * stride), hn::LoadU(d, column + 3 * stride));
        const auto s45 = hn::Add(hn::LoadU(d, column + 4 * stride), hn::LoadU(d, column + 5 * stride));
        const auto s67 = hn::Add(hn::LoadU(d, column + 6 * stride), hn::LoadU(d, column + 7 * stride));
        total = hn::Add(hn::Add(s01, s23), hn::Add(s45, s67));
      } else {
        total = hn::LoadU(d, column);
        for (std::int64_t i = 1; i < rows; ++i) total = hn::Add(total, hn::LoadU(d, column + i * stride));
      }
      if constexpr (std::is_same_v<T, Wide<T>>)
        hn::StoreU(hn::Add(hn::LoadU(dw, sum + j), total), dw, sum + j);
      else
        hn::StoreU(hn::Add(hn::LoadU(dw, sum + j), hn::PromoteTo(dw, total)), dw, sum + j);
    }
    for (; j < width; ++j)
      for (std::int64_t i = 0; i < rows; ++i) sum[j] += top[i * stride + j];
  }
}

/// How [outer, n, inner] is cut: tiles of columns, and chunks of rows that are summed separately.
struct ColumnTasks {
  std::int64_t n, inner, rows, tiles, chunks;

  ColumnTasks(std::int64_t n, std::int64_t inner) : n(n), inner(inner) {
    const std::int64_t width = std::min(inner, tile_width);
    rows = std::max<std::int64_t>(256, task_size / width / 8 * 8);
    tiles = ceil_div(inner, tile_width);
    chunks = std::max<std::int64_t>(1, ceil_div(n, rows));
  }
  std::int64_t count(std::int64_t outer) const { return outer * tiles * chunks; }
  std::int64_t grain() const {
    return pieces_per_task(task_size, std::min(n, rows) * std::min(inner, tile_width));
  }
};

/// x [outer, n, inner], out [outer, inner].
template <class T>
void sum_columns(const T* x, std::int64_t outer, std::int64_t n, std::int64_t inner, T* out) {
  const ColumnTasks cut(n, inner);
  // [outer, chunks, inner]; with one chunk the sums go straight to `out`.
  std::vector<Wide<T>> partial(static_cast<std::size_t>(cut.chunks == 1 ? 0 : outer * cut.chunks * inner));
  parallel_ranges(cut.count(outer), cut.grain(), [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    HWY_ALIGN Wide<T> sum[tile_width];
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t tile = task % cut.tiles, chunk = task / cut.tiles % cut.chunks;
      const std::int64_t o = task / cut.tiles / cut.chunks;
      const std::int64_t left = tile * tile_width, width = std::min(tile_width, inner - left);
      const std::int64_t top = chunk * cut.rows, rows = std::min(cut.rows, n - top);
      std::fill_n(sum, width, Wide<T>{0});
      add_columns(x + (o * n + top) * inner + left, rows, inner, width, sum);
      if (cut.chunks == 1)
        for (std::int64_t j = 0; j < width; ++j) out[o * inner + left + j] = narrowed<T>(sum[j]);
      else
        std::copy_n(sum, width, partial.data() + (o * cut.chunks + chunk) * inner + left);
    }
  });
  if (cut.chunks == 1) return;
  for (std::int64_t o = 0; o < outer; ++o) {
    Wide<T>* sums = partial.data() + o * cut.chunks * inner;
    for (std::int64_t chunk = 1; chunk < cut.chunks; ++chunk)
      for (std::int64_t j = 0; j < inner; ++j) sums[j] += sums[chunk * inner + j];
    for (std::int64_t j = 0; j < inner; ++j) out[o * inner + j] = narrowed<T>(sums[j]);
  }
}

/// The larger (smaller) of two values; NaN wins.
template <bool largest, class T>
HWY_INLINE T pick_extreme(T best, T x) {
  return ((largest ? x > best : x < best) || x != x) ? x : best;
}

template <bool largest, class T>
constexpr T reduction_identity() {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity) return largest ? -Limits::infinity() : Limits::infinity();
  return largest ? Limits::lowest() : Limits::max();
}

template <bool largest, class T>
T row_extreme(const T* x, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto best = hn::Set(d, reduction_identity<largest, T>());
  auto unordered = hn::FirstN(d, 0);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    best = largest ? hn::Max(best, v) : hn::Min(best, v);
    if constexpr (std::is_floating_point_v<T>) unordered = hn::Or(unordered, hn::IsNaN(v));
  }
  if (!hn::AllFalse(d, unordered)) {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
  }
  T result = hn::GetLane(largest ? hn::MaxOfLanes(d, best) : hn::MinOfLanes(d, best));
  for (; i < n; ++i) result = pick_extreme<largest>(result, x[i]);
  return result;
}

/// x [outer, n, inner], out [outer, inner].
template <bool largest, class T>
void extremes(const T* x, std::int64_t outer, std::int64_t n, std::int64_t inner, T* out) {
  if (inner == 1) {
    parallel_ranges(outer, pieces_per_task(task_size, n), [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      for (std::int64_t row = begin; row < end; ++row) out[row] = row_extreme<largest>(x + row * n, n);
    });
    return;
  }
  const std::int64_t tiles = ceil_div(inner, tile_width);
  const std::int64_t grain = pieces_per_task(task_size, n * std::min(inner, tile_width));
  parallel_ranges(outer * tiles, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t o = task / tiles, left = task % tiles * tile_width;
      const std::int64_t width = std::min(tile_width, inner - left);
      T* best = out + o * inner + left;
      std::fill_n(best, width, reduction_identity<largest, T>());
      for (std::int64_t row = 0; row < n; ++row) {
        const T* values = x + (o * n + row) * inner + left;
        for (std::int64_t j = 0; j < width; ++j) best[j] = pick_extreme<largest>(best[j], values[j]);
      }
    }
  });
}

template <class T>
void reduce_as(ReduceOp op, const Tensor& x, const Tensor& out) {
  const std::int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* from = x.data<T>();
  T* to = out.data<T>();
  switch (op) {
    case ReduceOp::sum:
      return inner == 1 ? sum_rows(from, outer, n, to) : sum_columns(from, outer, n, inner, to);
    case ReduceOp::max:
      return extremes<true>(from, outer, n, inner, to);
    case ReduceOp::min:
      return extremes<false>(from, outer, n, inner, to);
  }
}

void reduce_tensor(ReduceOp op, const Tensor& x, const Tensor& out) {
  with_element_type(x.dtype(), [&]<class T>(T) { reduce_as<T>(op, x, out); });
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

constexpr std::int64_t scan_task = 16384;  // elements worth a task of their own
constexpr std::int64_t scan_width = 256;   // columns scanned at once

using HWY_STATIC_DISPATCH(Wide);

/// Scans one row, keeping its sum, or what else it combines into, in a register.
template <class T, class Combine>
void scan_row(const T* x, std::int64_t n, bool reverse, Wide<T> sum, const Combine& combine, T* out) {
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = reverse ? n - 1 - step : step;
    sum = combine(sum, x[i]);
    out[i] = static_cast<T>(sum);
  }
}

/// Scans one tile of columns, in double (int64 for i32) so that the error does not grow with n. x and out
/// [n, stride]; `reverse` starts from the last row.
template <class T, class Combine>
void scan_columns(const T* x, std::int64_t n, std::int64_t stride, std::int64_t width, bool reverse,
                  Wide<T> start, const Combine& combine, T* out) {
  Wide<T> sum[scan_width];
  std::fill_n(sum, width, start);
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t row = (reverse ? n - 1 - step : step) * stride;
    for (std::int64_t j = 0; j < width; ++j) {
      sum[j] = combine(sum[j], x[row + j]);
      out[row + j] = static_cast<T>(sum[j]);
    }
  }
}

template <class T, class Combine>
void scan(const Tensor& x, bool reverse, Wide<T> start, const Combine& combine, const Tensor& out) {
  const std::int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* from = x.data<T>();
  T* to = out.data<T>();
  const std::int64_t width = std::min(inner, scan_width), tiles = ceil_div(inner, scan_width);
  const std::int64_t grain = pieces_per_task(scan_task, n * width);
  parallel_ranges(outer * tiles, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t left = task % tiles * scan_width, at = task / tiles * n * inner + left;
      if (inner == 1) {
        scan_row(from + at, n, reverse, start, combine, to + at);
        continue;
      }
      scan_columns(from + at, n, inner, std::min(scan_width, inner - left), reverse, start, combine, to + at);
    }
  });
}

}  // namespace

HWY_EXPORT(reduce_tensor);

void reduce(ReduceOp op, const Tensor& x, const Tensor& out) {
  if (out.count() == 0) return;
  const ProfileScope profile("reduce", 0, bytes_of(x) + bytes_of(out));
  HWY_DYNAMIC_DISPATCH(reduce_tensor)(op, x, out);
}

void cumulative_sum(const Tensor& x, bool reverse, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("cumulative_sum", 0, 2 * bytes_of(x));
  with_element_type(x.dtype(), [&]<class T>(T) {
    scan<T>(
        x, reverse, 0, [](Wide<T> sum, T value) { return sum + value; }, out);
  });
}

void running_max(const Tensor& x, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("running_max", 0, 2 * bytes_of(x));
  with_floating_type(x.dtype(), [&]<class T>(T) {
    scan<T>(
        x, false, -std::numeric_limits<double>::infinity(),
        [](double largest, T value) { return value <= largest ? largest : double{value}; }, out);
  });
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
