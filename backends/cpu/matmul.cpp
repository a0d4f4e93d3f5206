#include <algorithm>

#include "heed/backends/cpu/attention_single.h"
#include "heed/backends/cpu/blas.h"
#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/matmul_plan.h"
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

/// out = a b + bias + beta out, as the tiles of a plan. Every tile is computed on its own, in any order; then those rows of C
/// whose sums have several parts are added up.
template <class T>
class TiledProduct {
 public:
  TiledProduct(const Tensor& a, const Tensor& b, const Tensor& bias, T beta, const Tensor& out)
      : a_(a),
        b_(b),
        out_(out),
        m_(out.size(-2)),
        n_(out.size(-1)),
        k_(a.size(-1)),
        batch_(out.count() / (m_ * n_)),
        product_{MatrixLayout(a, m_, k_), MatrixLayout(b, k_, n_), m_ > 1 ? out.stride(-2) : n_},
        bias_(bias.defined() ? bias.data<T>() : nullptr),
        beta_(beta),
        plan_(batch_, m_, n_, k_) {
    // The sums of all parts of k but the first are kept here, [parts - 1, batch, m, n], and added in order.
    if (plan_.parts > 1) rest_ = Tensor::empty({plan_.parts - 1, batch_, m_, n_}, out.dtype());
  }

  const MatmulPlan& plan() const { return plan_; }

  /// Tiles [task, task + 1) * tiles_at_once.
  void run(std::int64_t task) const {
    const std::int64_t begin = task * plan_.tiles_at_once;
    for (std::int64_t i = begin; i < std::min(begin + plan_.tiles_at_once, plan_.tiles()); ++i) tile(i);
  }

  /// Tasks that add the parts when all tiles are there.
  std::int64_t adding_tasks() const { return plan_.parts > 1 ? ceil_div(batch_ * m_, rows_at_once()) : 0; }

  void add_parts(std::int64_t task) const {
    const std::int64_t begin = task * rows_at_once(), end = std::min(begin + rows_at_once(), batch_ * m_);
    const T* rest = rest_.template data<T>();
    for (std::int64_t row = begin; row < end; ++row) {
      T* c = out_.template data<T>() + batch_offset(out_, row / m_) + row % m_ * product_.c_leading;
      for (std::int64_t part = 1; part < plan_.parts; ++part) {
        const T* sums = rest + ((part - 1) * batch_ * m_ + row) * n_;
        for (std::int64_t j = 0; j < n_; ++j) c[j] += sums[j];
      }
    }
  }

 private:
  std::int64_t rows_at_once() const { return std::max<std::int64_t>(1, (32 << 10) / (n_ * plan_.parts)); }

  void tile(std::int64_t index) const {
    const std::int64_t part = index % plan_.parts, column = index / plan_.parts % plan_.columns,
                       row = index / (plan_.parts * plan_.columns) % plan_.rows,
                       item = index / (plan_.parts * plan_.columns * plan_.rows);
    const std::int64_t i = row * plan_.tile_rows, j = column * plan_.tile_columns,
                       l = part * plan_.part_depth;
    const std::int64_t height = std::min(plan_.tile_rows, m_ - i),
                       width = std::min(plan_.tile_columns, n_ - j);
    const T* a_tile = a_.template data<T>() + batch_offset(a_, item) + i * product_.a_layout.row_stride() +
                      l * product_.a_layout.column_stride();
    const T* b_tile = b_.template data<T>() + batch_offset(b_, item) + l * product_.b_layout.row_stride() +
                      j * product_.b_layout.column_stride();
    const std::int64_t depth = std::min(plan_.part_depth, k_ - l);
    if (part > 0) {
      const Product<T> into_rest{product_.a_layout, product_.b_layout, n_};
      into_rest(height, width, depth, a_tile, b_tile, T(0),
                rest_.template data<T>() + (((part - 1) * batch_ + item) * m_ + i) * n_ + j);
      return;
    }
    T* c = out_.template data<T>() + batch_offset(out_, item) + i * product_.c_leading + j;
    if (bias_) start_with_bias(height, width, bias_ + j, beta_, c, product_.c_leading);
    product_(height, width, depth, a_tile, b_tile, bias_ ? T(1) : beta_, c);
  }

  const Tensor &a_, &b_, &out_;
  const std::int64_t m_, n_, k_, batch_;
  const Product<T> product_;
  const T* bias_;
  const T beta_;
  const MatmulPlan plan_;
  Tensor rest_;
};

template <class T>
void run(const Tensor& a, const Tensor& b, const Tensor& bias, T beta, const Tensor& out) {
  const TiledProduct<T> product(a, b, bias, beta, out);
  parallel_for(product.plan().tasks(), [&](std::int64_t task) { product.run(task); });
  parallel_for(product.adding_tasks(), [&](std::int64_t task) { product.add_parts(task); });
}

template <class T>
void run_pair(const Tensor& grad, const Tensor& x, const Tensor& weight, T beta, const Tensor& dx,
              const Tensor& dweight) {
  const Tensor across =
      grad.view({grad.size(1), grad.size(0)}, {grad.stride(1), grad.stride(0)}, grad.offset());
  const TiledProduct<T> of_weight(across, x, {}, beta, dweight), of_x(grad, weight, {}, 0, dx);
  const std::int64_t first = of_weight.plan().tasks(), first_sums = of_weight.adding_tasks();
  parallel_for(first + of_x.plan().tasks(),
               [&](std::int64_t task) { task < first ? of_weight.run(task) : of_x.run(task - first); });
  parallel_for(first_sums + of_x.adding_tasks(), [&](std::int64_t task) {
    task < first_sums ? of_weight.add_parts(task) : of_x.add_parts(task - first_sums);
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

void linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, double beta, const Tensor& dx,
                     const Tensor& dweight) {
  if (grad.count() == 0 || weight.count() == 0) {
    matmul(grad, weight, {}, 0, dx);
    matmul(grad.view({grad.size(1), grad.size(0)}, {1, grad.size(1)}, grad.offset()), x, {}, beta, dweight);
    return;
  }
  const ProfileScope profile("matmul", 4 * static_cast<double>(grad.count()) * static_cast<double>(x.size(1)),
                             2 * static_cast<double>(grad.count() + x.count() + weight.count()) *
                                 static_cast<double>(size_of(grad.dtype())));
  if (grad.dtype() == DType::f32) {
    run_pair<float>(grad, x, weight, static_cast<float>(beta), dx, dweight);
  } else {
    run_pair<double>(grad, x, weight, beta, dx, dweight);
  }
}

}  // namespace heed::cpu
