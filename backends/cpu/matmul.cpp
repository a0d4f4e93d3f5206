#include <algorithm>

#include "heed/backends/cpu/attention_single.h"
#include "heed/backends/cpu/blas.h"
#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/backends/strides.h"
#include "heed/core/checked.h"
#include "heed/core/profile.h"

// Matrix products. C is cut into a grid of tiles that depends on the shape alone, and each tile is one
// single-threaded BLAS call: the bits of the result are the same for any number of threads. (OpenBLAS' own
// threads give other bits for every thread count, and are slower on the small products of attention heads.)

namespace heed::cpu {
namespace {

/// One matrix of a batch as BLAS sees it.
struct MatrixLayout {
  bool transposed;
  std::int64_t leading;  // stride between stored rows

  /// `rows` x `columns` are the extents of the last two axes, whose strides are (s, 1) or (1, s).
  MatrixLayout(const Tensor& tensor, std::int64_t rows, std::int64_t columns) {
    transposed = !lies_by_rows(tensor);
    if (transposed) {
      leading = columns > 1 ? tensor.stride(-1) : rows;
    } else {
      leading = rows > 1 ? tensor.stride(-2) : columns;
    }
    leading = std::max<std::int64_t>({leading, 1, transposed ? rows : columns});
  }

  std::int64_t row_stride() const { return transposed ? 1 : leading; }
  std::int64_t column_stride() const { return transposed ? leading : 1; }
};

/// Offset of the index-th matrix of a batch.
std::int64_t batch_offset(const Tensor& tensor, std::int64_t index) {
  std::int64_t offset = 0;
  for (int axis = tensor.rank() - 3; axis >= 0; --axis) {
    offset += index % tensor.size(axis) * tensor.stride(axis);
    index /= tensor.size(axis);
  }
  return offset;
}

/// How a batch of products is cut into tasks. BLAS is at its best on tiles of 256 x 256 and more (measured:
/// 190 of at most 210 GFLOP/s a thread, 150 at 128 x 128), and some 8 tasks keep the threads evenly loaded.
struct Plan {
  std::int64_t tile_rows, tile_columns;
  std::int64_t rows = 1, columns = 1;  // tiles of C
  std::int64_t parts = 1;              // pieces of k, each summed on its own
  std::int64_t part_depth;
  std::int64_t tasks_at_once = 1;  // tiles per task of the pool

  Plan(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k)
      : tile_rows(m), tile_columns(n), part_depth(k) {
    // Products with a vector are bound by memory: a quarter of a megabyte of the matrix is worth a task.
    const double smallest = std::min(m, n) < 8 ? 2.0 * 64e3 : 1.2e6;
    while ((batch * rows * columns < wanted_tasks || tile_flops() > largest_tile) &&
           split(m, n, 256, smallest)) {
    }
    // A weight gradient: few outputs, each a long sum.
    if (batch * rows * columns < few_tasks && k >= 2 * shortest_part) {
      parts = std::min(wanted_tasks / (batch * rows * columns), k / shortest_part);
      part_depth = ceil_div(ceil_div(k, parts), 16) * 16;
      parts = ceil_div(k, part_depth);
    }
    while (batch * rows * columns * parts < few_tasks && split(m, n, 64, smallest)) {
    }
    tasks_at_once =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(smallest_task / std::max(tile_flops(), 1.0)));
  }

 private:
  static constexpr std::int64_t wanted_tasks = 8, few_tasks = 4;
  static constexpr std::int64_t shortest_part = 1024;
  static constexpr double largest_tile = 3e8, smallest_task = 1e6;  // flops

  double tile_flops() const {
    return 2.0 * static_cast<double>(tile_rows) * static_cast<double>(tile_columns) *
           static_cast<double>(part_depth);
  }

  /// Cuts the longer side of the tiles into one more piece, if they stay large enough.
  bool split(std::int64_t m, std::int64_t n, std::int64_t shortest, double smallest) {
    if (tile_flops() < 2 * smallest) return false;
    const bool by_rows = tile_rows > tile_columns;
    std::int64_t& pieces = by_rows ? rows : columns;
    std::int64_t& side = by_rows ? tile_rows : tile_columns;
    const std::int64_t extent = by_rows ? m : n;
    std::int64_t wanted = pieces + 1, next = side;
    while (next >= side && wanted <= extent) next = ceil_div(ceil_div(extent, wanted++), 16) * 16;
    if (next < shortest || next >= side) return false;
    side = next;
    pieces = ceil_div(extent, side);
    return true;
  }
};

/// So few rows are multiplied one by one with a matrix that lies by columns, such as the weights of a linear map.
constexpr std::int64_t unpacked_rows = 6;

/// The operands of one call of BLAS.
template <class T>
struct Product {
  MatrixLayout a_layout, b_layout;
  std::int64_t c_leading;

  /// c = a b + beta c for a height x width tile and sums of `depth` terms.
  void operator()(std::int64_t height, std::int64_t width, std::int64_t depth, const T* a, const T* b, T beta,
                  T* c) const {
    if (depth == 0) {
      if (beta == 0)
        for (std::int64_t row = 0; row < height; ++row) std::fill_n(c + row * c_leading, width, T(0));
    } else if (height <= unpacked_rows && b_layout.transposed && a_layout.column_stride() == 1) {
      // Nothing is packed: some rows of the weights at a time are read once and serve all rows of `a` from the cache.
      constexpr std::int64_t at_once = 8;
      for (std::int64_t j = 0; j < width; j += at_once)
        for (std::int64_t row = 0; row < height; ++row)
          row_times_transposed(a + row * a_layout.row_stride(), b + j * b_layout.leading, b_layout.leading,
                               std::min(at_once, width - j), depth, T(1), beta != 0, c + row * c_leading + j);
    } else if (height == 1) {
      gemv<T>(!b_layout.transposed, b_layout.transposed ? width : depth, b_layout.transposed ? depth : width,
              T(1), b, b_layout.leading, a, a_layout.column_stride(), beta, c, 1);
    } else if (width == 1) {
      gemv<T>(a_layout.transposed, a_layout.transposed ? depth : height, a_layout.transposed ? height : depth,
              T(1), a, a_layout.leading, b, b_layout.row_stride(), beta, c, c_leading);
    } else {
      gemm<T>(a_layout.transposed, b_layout.transposed, height, width, depth, T(1), a, a_layout.leading, b,
              b_layout.leading, beta, c, c_leading);
    }
  }
};

/// Prepares a tile of C for the product to be added: bias, plus the old content if beta is 1.
template <class T>
void start_with_bias(std::int64_t height, std::int64_t width, const T* bias, T beta, T* c,
                     std::int64_t leading) {
  for (std::int64_t row = 0; row < height; ++row, c += leading) {
    if (beta == 0) {
      std::copy_n(bias, width, c);
    } else {
      for (std::int64_t column = 0; column < width; ++column) c[column] += bias[column];
    }
  }
}

template <class T>
void run(const Tensor& a, const Tensor& b, const Tensor& bias, T beta, const Tensor& out) {
  const std::int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1), batch = out.count() / (m * n);
  const Product<T> product{MatrixLayout(a, m, k), MatrixLayout(b, k, n), m > 1 ? out.stride(-2) : n};
  const T *a_data = a.data<T>(), *b_data = b.data<T>(),
          *bias_data = bias.defined() ? bias.data<T>() : nullptr;
  T* c_data = out.data<T>();
  const Plan plan(batch, m, n, k);
  // The sums of all parts of k but the first are kept here, [parts - 1, batch, m, n], and added in order.
  const Tensor rest = plan.parts > 1 ? Tensor::empty({plan.parts - 1, batch, m, n}, out.dtype()) : Tensor();
  T* rest_data = plan.parts > 1 ? rest.data<T>() : nullptr;

  const auto tile = [&](std::int64_t task) {
    const std::int64_t part = task % plan.parts, column = task / plan.parts % plan.columns,
                       row = task / (plan.parts * plan.columns) % plan.rows,
                       item = task / (plan.parts * plan.columns * plan.rows);
    const std::int64_t i = row * plan.tile_rows, j = column * plan.tile_columns, l = part * plan.part_depth;
    const std::int64_t height = std::min(plan.tile_rows, m - i), width = std::min(plan.tile_columns, n - j);
    const T* a_tile = a_data + batch_offset(a, item) + i * product.a_layout.row_stride() +
                      l * product.a_layout.column_stride();
    const T* b_tile = b_data + batch_offset(b, item) + l * product.b_layout.row_stride() +
                      j * product.b_layout.column_stride();
    const std::int64_t depth = std::min(plan.part_depth, k - l);
    if (part > 0) {
      const Product<T> into_rest{product.a_layout, product.b_layout, n};
      into_rest(height, width, depth, a_tile, b_tile, T(0),
                rest_data + (((part - 1) * batch + item) * m + i) * n + j);
      return;
    }
    T* c = c_data + batch_offset(out, item) + i * product.c_leading + j;
    if (bias_data) start_with_bias(height, width, bias_data + j, beta, c, product.c_leading);
    product(height, width, depth, a_tile, b_tile, bias_data ? T(1) : beta, c);
  };

  parallel_ranges(batch * plan.rows * plan.columns * plan.parts, plan.tasks_at_once,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t task = begin; task < end; ++task) tile(task);
                  });
  if (plan.parts == 1) return;
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, (8 << 10) / (n * plan.parts));
  parallel_ranges(batch * m, rows_at_once, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* c = c_data + batch_offset(out, row / m) + row % m * product.c_leading;
      for (std::int64_t part = 1; part < plan.parts; ++part) {
        const T* sums = rest_data + ((part - 1) * batch * m + row) * n;
        for (std::int64_t j = 0; j < n; ++j) c[j] += sums[j];
      }
    }
  });
}

/// [..., m, k] x [k, n] with the second operand broadcast over the leading axes is one product with more
/// rows, if the rows of `a` and of `out` are evenly spaced.
void flatten_batch(Tensor& a, Tensor& b, Tensor& out) {
  const int leading = out.rank() - 2;
  if (leading == 0 || a.stride(-1) != 1 || a.stride(-2) < a.size(-1) || out.stride(-2) < out.size(-1)) return;
  std::int64_t rows = out.size(-2);
  for (int axis = leading - 1; axis >= 0; --axis) {
    if (out.size(axis) == 1) continue;
    if (b.stride(axis) != 0 || a.stride(axis) != rows * a.stride(-2) ||
        out.stride(axis) != rows * out.stride(-2))
      return;
    rows *= out.size(axis);
  }
  a = a.view({rows, a.size(-1)}, {a.stride(-2), 1}, a.offset());
  b = b.view({b.size(-2), b.size(-1)}, {b.stride(-2), b.stride(-1)}, b.offset());
  out = out.view({rows, out.size(-1)}, {out.stride(-2), 1}, out.offset());
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, const Tensor& out) {
  const auto outputs = static_cast<double>(out.count()), inner = static_cast<double>(a.size(-1));
  const auto elements = static_cast<double>(a.count() + b.count() + out.count());
  const ProfileScope profile("matmul", 2 * outputs * inner,
                             elements * static_cast<double>(size_of(out.dtype())));
  if (out.count() == 0) return;
  Tensor flat_a = a, flat_b = b, flat_out = out;
  flatten_batch(flat_a, flat_b, flat_out);
  if (out.dtype() == DType::f32) {
    run<float>(flat_a, flat_b, bias, static_cast<float>(beta), flat_out);
  } else {
    run<double>(flat_a, flat_b, bias, beta, flat_out);
  }
}

}  // namespace heed::cpu
