#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "heed/backends/cpu/operands.h"
#include "heed/base/error.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

// Filling and copying between any strides and any two dtypes.

namespace heed::cpu {
namespace {

constexpr std::int64_t task_elements = 32 << 10;
// Cache lines open at once while transposing: fewer than the ways of a cache.
constexpr std::int64_t tile = 8;

template <class From, class To>
To convert(From value) {
  if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // Truncates. Values that i32 cannot hold become the nearest bound, and NaN becomes 0; a
    // plain cast would be undefined.
    if (!(value > -2147483649.0)) return value != value ? 0 : std::numeric_limits<To>::min();
    return value < 2147483648.0 ? static_cast<To>(value) : std::numeric_limits<To>::max();
  } else {
    return static_cast<To>(value);
  }
}

/// The axes of a copy, ordered by decreasing output stride; axes that both sides can walk as one are merged.
struct CopyPlan {
  struct Axis {
    std::int64_t extent, from, to;
  };
  std::array<Axis, Shape::max_rank> axes{};
  int rank = 0;

  CopyPlan(const Shape& shape, const Shape& from, const Shape& to) {
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] != 1) axes[rank++] = {shape[i], from[i], to[i]};
    std::stable_sort(axes.begin(), axes.begin() + rank,
                     [](const Axis& a, const Axis& b) { return a.to > b.to; });
    int merged = 0;
    for (int i = 0; i < rank; ++i) {
      Axis* last = merged > 0 ? &axes[merged - 1] : nullptr;
      const Axis axis = axes[i];
      if (last && last->from == axis.from * axis.extent && last->to == axis.to * axis.extent) {
        *last = {last->extent * axis.extent, axis.from, axis.to};
      } else {
        axes[merged++] = axis;
      }
    }
    rank = merged;
  }

  /// Makes an axis the second last.
  void make_second_last(int axis) {
    std::rotate(axes.begin() + axis, axes.begin() + axis + 1, axes.begin() + rank - 1);
  }

  std::int64_t combinations(int count) const {
    std::int64_t product = 1;
    for (int i = 0; i < count; ++i) product *= axes[i].extent;
    return product;
  }
};

/// Steps through the index combinations of a plan's leading axes, and their offsets.
class Walker {
 public:
  Walker(const CopyPlan& plan, int axes, std::int64_t index) : plan_(plan), axes_(axes) {
    for (int i = axes - 1; i >= 0; --i) {
      position_[i] = index % plan.axes[i].extent;
      index /= plan.axes[i].extent;
      from += position_[i] * plan.axes[i].from;
      to += position_[i] * plan.axes[i].to;
    }
  }

  void next() {
    for (int i = axes_ - 1; i >= 0; --i) {
      const CopyPlan::Axis& axis = plan_.axes[i];
      from += axis.from;
      to += axis.to;
      if (++position_[i] < axis.extent) return;
      from -= axis.extent * axis.from;
      to -= axis.extent * axis.to;
      position_[i] = 0;
    }
  }

  std::int64_t from = 0, to = 0;

 private:
  const CopyPlan& plan_;
  int axes_;
  std::array<std::int64_t, Shape::max_rank> position_{};
};

template <class From, class To>
void copy_row(const From* from, std::int64_t from_stride, To* to, std::int64_t to_stride,
              std::int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[i] = convert<From, To>(from[i]);
    }
  } else if (from_stride == 0 && to_stride == 1) {
    std::fill_n(to, count, convert<From, To>(*from));
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = convert<From, To>(from[i * from_stride]);
  }
}

/// Copies [rows, columns] whose input is contiguous along columns, tile by tile, so that every cache
/// line fetched is fully used.
template <class From, class To>
void copy_transposed(const From* from, const CopyPlan::Axis& rows, const CopyPlan::Axis& columns, To* to) {
  for (std::int64_t j0 = 0; j0 < columns.extent; j0 += tile) {
    const std::int64_t j1 = std::min(j0 + tile, columns.extent);
    for (std::int64_t i = 0; i < rows.extent; ++i) {
      const From* source = from + i * rows.from;
      To* target = to + i * rows.to;
      for (std::int64_t j = j0; j < j1; ++j)
        target[j * columns.to] = convert<From, To>(source[j * columns.from]);
    }
  }
}

/// Copies when the last two axes are a transposition. Cuts the rows into bands of fixed height, so that
/// even a single big matrix is shared among threads.
template <class From, class To>
void copy_transpositions(const CopyPlan& plan, const From* from, To* to) {
  const CopyPlan::Axis rows = plan.axes[plan.rank - 2], columns = plan.axes[plan.rank - 1];
  const std::int64_t height = std::max(tile, task_elements / columns.extent / tile * tile);
  const std::int64_t bands = ceil_div(rows.extent, height);
  const std::int64_t grain = pieces_per_task(task_elements, std::min(height, rows.extent) * columns.extent);
  parallel_ranges(plan.combinations(plan.rank - 2) * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    Walker matrix(plan, plan.rank - 2, begin / bands);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % bands * height;
      const CopyPlan::Axis band{std::min(height, rows.extent - first), rows.from, rows.to};
      copy_transposed(from + matrix.from + first * rows.from, band, columns,
                      to + matrix.to + first * rows.to);
      if ((i + 1) % bands == 0) matrix.next();
    }
  });
}

template <class From, class To>
void copy_rows(const CopyPlan& plan, const From* from, To* to) {
  const CopyPlan::Axis inner = plan.axes[plan.rank - 1];
  const std::int64_t length = std::min(inner.extent, task_elements);
  const std::int64_t pieces = ceil_div(inner.extent, length);  // pieces per row
  const std::int64_t grain = task_elements / length;
  parallel_ranges(
      plan.combinations(plan.rank - 1) * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
        Walker row(plan, plan.rank - 1, begin / pieces);
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t first = i % pieces * length;
          copy_row(from + row.from + first * inner.from, inner.from, to + row.to + first * inner.to, inner.to,
                   std::min(length, inner.extent - first));
          if ((i + 1) % pieces == 0) row.next();
        }
      });
}

template <class From, class To>
void run_copy(CopyPlan plan, const From* from, To* to) {
  if (plan.rank == 0) {
    *to = convert<From, To>(*from);
    return;
  }
  if (plan.axes[plan.rank - 1].from > 1) {
    for (int i = 0; i < plan.rank - 1; ++i) {
      if (plan.axes[i].from != 1) continue;  // find the axis along which the input is contiguous
      plan.make_second_last(i);
      return copy_transpositions(plan, from, to);
    }
  }
  copy_rows(plan, from, to);
}

}  // namespace

void fill(double value, const Tensor& out) {
  const ProfileScope profile("fill", 0, bytes_of(out));
  if (out.count() == 0) return;
  with_element_type(out.dtype(), [&]<class T>(T) {
    const T element = convert<double, T>(value);
    Shape zeros;
    for (int i = 0; i < out.rank(); ++i) zeros.push_back(0);
    run_copy(CopyPlan(out.shape(), zeros, out.strides()), &element, out.data<T>());
  });
}

void copy(const Tensor& x, const Tensor& out) {
  const ProfileScope profile("copy", 0, bytes_of(x) + bytes_of(out));
  if (out.count() == 0) return;
  const CopyPlan plan(out.shape(), x.strides(), out.strides());
  with_element_type(x.dtype(), [&]<class From>(From) {
    with_element_type(out.dtype(), [&]<class To>(To) { run_copy(plan, x.data<From>(), out.data<To>()); });
  });
}

namespace {

/// Throws for the first index that is neither -1 nor a row.
void check_indices(const char* op, const Tensor& index, std::int64_t rows) {
  const auto* at = index.data<std::int32_t>();
  for (std::int64_t i = 0; i < index.count(); ++i) {
    check(at[i] >= -1 && at[i] < rows, op, ": index ", at[i], " at position [", i / index.size(1), ", ",
          i % index.size(1), "] is outside [0, ", rows, ") and is not -1");
  }
}

/// Adds columns [begin, end) of one batch entry, in the order of i.
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
  // Columns are independent sums with equal work. Ranges of targets would not be: frequent tokens cluster.
  constexpr std::int64_t columns = 16;
  const std::int64_t pieces = std::max<std::int64_t>(1, width / columns);
  // With little work per batch entry, several entries make one task.
  const std::int64_t grain = pieces_per_task(32768, count * width / pieces);
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
  const ProfileScope profile("gather_rows", 0, 2 * bytes_of(out));
  check_indices("gather_rows", index, rows);
  if (out.count() == 0) return;
  const std::byte* from = first_byte(x);
  const auto* at = index.data<std::int32_t>();
  std::byte* to = first_byte(out);
  const std::int64_t grain = pieces_per_task(131072, static_cast<std::int64_t>(row_bytes) + 8);
  parallel_ranges(index.count(), grain, [&](std::int64_t begin, std::int64_t end) {
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
  const ProfileScope profile("scatter_add_rows", 0, 3 * bytes_of(x));
  check_indices("scatter_add_rows", index, out.size(1));
  if (x.count() == 0) return;
  with_floating_type(x.dtype(), [&]<class T>(T) { scatter_add<T>(x, index, out); });
}

}  // namespace heed::cpu
