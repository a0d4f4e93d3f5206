#include <algorithm>
#include <cstddef>
#include <cstring>

#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

namespace heed::cpu {
namespace {

/// Throws at the first index that is neither -1 nor a row.
void check_indices(const char* op, const Tensor& index, std::int64_t rows) {
  const auto* at = index.data<std::int32_t>();
  for (std::int64_t i = 0; i < index.count(); ++i) {
    check(at[i] >= -1 && at[i] < rows, op, ": index ", at[i], " at position [", i / index.size(1), ", ",
          i % index.size(1), "] is outside [0, ", rows, ") and is not -1");
  }
}

std::byte* bytes_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.storage()->host_data()) +
         static_cast<std::size_t>(tensor.offset()) * size_of(tensor.dtype());
}

/// Rows of one task: enough to be worth waking a thread.
std::int64_t rows_per_task(std::size_t row_bytes) {
  return std::max<std::int64_t>(1, 131072 / static_cast<std::int64_t>(row_bytes + 8));
}

/// Columns [begin, end) of one batch entry, in the order of i.
template <class T>
void add_columns(const T* x, const std::int32_t* index, std::int64_t count, std::int64_t width,
                 std::int64_t begin, std::int64_t end, T* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (index[i] < 0) continue;
    const T* from = x + i * width;
    T* to = out + index[i] * width;
    for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
  }
}

template <class T>
void scatter_add(const Tensor& x, const Tensor& index, const Tensor& out) {
  const std::int64_t batch = x.size(0), count = x.size(1), width = x.size(2), rows = out.size(1);
  // Columns are independent sums, and unlike ranges of targets equally much work each:
  // frequent tokens crowd together.
  constexpr std::int64_t columns = 16;
  const std::int64_t pieces = std::max<std::int64_t>(1, width / columns);
  // Little work per batch entry: several entries make one task.
  const std::int64_t grain =
      std::clamp<std::int64_t>(32768 / std::max<std::int64_t>(1, count * width / pieces), 1,
                               std::max<std::int64_t>(1, batch * pieces));
  parallel_ranges(batch * pieces, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t b = task / pieces, piece = task % pieces;
      add_columns(x.data<T>() + b * count * width, index.data<std::int32_t>() + b * count, count, width,
                  piece * width / pieces, (piece + 1) * width / pieces, out.data<T>() + b * rows * width);
    }
  });
}

}  // namespace

void gather_rows(const Tensor& x, const Tensor& index, const Tensor& out) {
  const std::int64_t rows = x.size(1), count = index.size(1);
  const std::size_t row_bytes = static_cast<std::size_t>(x.size(2)) * size_of(x.dtype());
  const ProfileScope profile("gather_rows", 0, 2.0 * static_cast<double>(out.count()) * size_of(x.dtype()));
  check_indices("gather_rows", index, rows);
  if (out.count() == 0) return;
  const std::byte* from = bytes_of(x);
  const auto* at = index.data<std::int32_t>();
  std::byte* to = bytes_of(out);
  parallel_ranges(index.count(), rows_per_task(row_bytes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::byte* row = to + static_cast<std::size_t>(i) * row_bytes;
      if (at[i] < 0) {
        std::memset(row, 0, row_bytes);
      } else {
        std::memcpy(row, from + static_cast<std::size_t>(i / count * rows + at[i]) * row_bytes, row_bytes);
      }
    }
  });
}

void scatter_add_rows(const Tensor& x, const Tensor& index, const Tensor& out) {
  const ProfileScope profile("scatter_add_rows", 0,
                             3.0 * static_cast<double>(x.count()) * size_of(x.dtype()));
  check_indices("scatter_add_rows", index, out.size(1));
  check(is_floating(x.dtype()), "scatter_add_rows: dtype ", x.dtype(), " is not supported; use f32 or f64");
  if (x.count() == 0) return;
  if (x.dtype() == DType::f64) {
    scatter_add<double>(x, index, out);
  } else {
    scatter_add<float>(x, index, out);
  }
}

}  // namespace heed::cpu
