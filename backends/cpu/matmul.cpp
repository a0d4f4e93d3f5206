#include <algorithm>

#include "heed/backends/cpu/blas.h"
#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
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
    const std::int64_t row_stride = tensor.stride(-2), column_stride = tensor.stride(-1);
    // Where an extent is 1 its stride says nothing.
    transposed = columns > 1 ? column_stride != 1 : row_stride == 1 && rows > 1;
    if (transposed) {
      leading = columns > 1 ? column_stride : rows;
    } else {
      leading = rows > 1 ? row_stride : columns;
    }
    leading = std::max<std::int64_t>({leading, 1, transposed ? rows : columns});
  }

  /// Offset of element (row, column).
  std::int64_t at(std::int64_t row, std::int64_t column) const {
    return transposed ? column * leading + row : row * leading + column;
  }
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

struct Grid {
  std::int64_t tile_rows, tile_columns;  // extents of a tile of C
  std::int64_t rows, columns;            // number of tiles
  std::int64_t products_per_task;        // batch items per task where one is too little work

  Grid(std::int64_t m, std::int64_t n, std::int64_t k) {
    tile_rows = 256;
    tile_columns = 256;
    rows = (m + tile_rows - 1) / tile_rows;
    columns = (n + tile_columns - 1) / tile_columns;
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    products_per_task =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(task_flops / std::max(flops, 1.0)));
  }

 private:
  static constexpr double task_flops = 1e6;  // some 10 us
};

template <class T>
void run(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, const Tensor& out) {
  const std::int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1);
  const std::int64_t batch = out.count() / (m * n);
  const MatrixLayout a_layout(a, m, k), b_layout(b, k, n);
  const std::int64_t c_leading = m > 1 ? out.stride(-2) : n;
  const T *a_data = a.data<T>(), *b_data = b.data<T>(),
          *bias_data = bias.defined() ? bias.data<T>() : nullptr;
  T* c_data = out.data<T>();
  const Grid grid(m, n, k);

  const auto tile = [&](std::int64_t item, std::int64_t index) {
    const std::int64_t i = index / grid.columns * grid.tile_rows,
                       j = index % grid.columns * grid.tile_columns;
    const std::int64_t height = std::min(grid.tile_rows, m - i), width = std::min(grid.tile_columns, n - j);
    T* c = c_data + batch_offset(out, item) + i * c_leading + j;
    T tile_beta = static_cast<T>(beta);
    if (bias_data) {  // the product is added to a tile that starts as the bias
      for (std::int64_t row = 0; row < height; ++row) {
        T* to = c + row * c_leading;
        for (std::int64_t column = 0; column < width; ++column)
          to[column] = (beta != 0 ? to[column] : T(0)) + bias_data[j + column];
      }
      tile_beta = 1;
    }
    if (k == 0) {
      if (tile_beta == 0)
        for (std::int64_t row = 0; row < height; ++row) std::fill_n(c + row * c_leading, width, T(0));
      return;
    }
    gemm<T>(a_layout.transposed, b_layout.transposed, height, width, k, T(1),
            a_data + batch_offset(a, item) + a_layout.at(i, 0), a_layout.leading,
            b_data + batch_offset(b, item) + b_layout.at(0, j), b_layout.leading, tile_beta, c, c_leading);
  };

  const std::int64_t tiles = grid.rows * grid.columns;
  parallel_ranges(batch * tiles, grid.products_per_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) tile(index / tiles, index % tiles);
  });
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, double beta, const Tensor& out) {
  const auto outputs = static_cast<double>(out.count()), inner = static_cast<double>(a.size(-1));
  const auto elements = static_cast<double>(a.count() + b.count() + out.count());
  const ProfileScope profile("matmul", 2 * outputs * inner,
                             elements * static_cast<double>(size_of(out.dtype())));
  if (out.count() == 0) return;
  if (out.dtype() == DType::f32) {
    run<float>(a, b, bias, beta, out);
  } else {
    run<double>(a, b, bias, beta, out);
  }
}

}  // namespace heed::cpu
