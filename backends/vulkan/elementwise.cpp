#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/tensor_iterator.h"
#include "heed/base/error.h"
#include "heed/core/elementwise.h"

// The elementwise kernels; their shaders are made from core/elementwise.def, like the CPU's kernels.

namespace heed::vulkan {
namespace {

/// The tensor itself, or a contiguous copy if its neighbours in memory lie along a different axis than the
/// output's, as in a transposed matrix: copying it in tiles is cheaper than reading it with large strides.
Tensor iterable(const Tensor& x) {
  constexpr std::int64_t worth_a_copy = 1 << 14;
  if (x.count() < worth_a_copy || x.rank() < 2 || x.is_contiguous()) return x;
  int inner = x.rank() - 1;
  while (inner > 0 && x.shape()[inner] == 1) --inner;
  if (x.strides()[inner] <= 1) return x;
  const bool has_neighbours = std::find(x.strides().begin(), x.strides().end(), 1) != x.strides().end();
  const bool repeats = std::find(x.strides().begin(), x.strides().end(), 0) != x.strides().end();
  if (!has_neighbours || repeats) return x;
  const Tensor rows = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy(x, rows);
  return rows;
}

template <class Op>
std::uint32_t line_of(Op op) {
  return static_cast<std::uint32_t>(op);
}

}  // namespace

void unary(UnaryOp op, UnaryParams params, const Tensor& x, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const Tensor rows = iterable(x);
  for_each_iterator(gpu, {&out, &rows}, [&](const TensorIterator& iterator) {
    iterator.launch(gpu, shader_name("unary", out.dtype()), {line_of(op)}, params.p, params.q);
  });
}

void unary_backward(UnaryOp op, UnaryParams params, const Tensor& saved, const Tensor& grad,
                    const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const Tensor saved_rows = iterable(saved), grad_rows = iterable(grad);
  for_each_iterator(gpu, {&out, &saved_rows, &grad_rows}, [&](const TensorIterator& iterator) {
    iterator.launch(gpu, shader_name("unary_backward", out.dtype()), {line_of(op)}, params.p, params.q);
  });
}

void binary(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const Tensor a_rows = iterable(a), b_rows = iterable(b);
  for_each_iterator(gpu, {&out, &a_rows, &b_rows}, [&](const TensorIterator& iterator) {
    iterator.launch(gpu, shader_name("binary", out.dtype()), {line_of(op)});
  });
}

void binary_backward(BinaryOp op, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                     const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const Tensor a_rows = iterable(a), b_rows = iterable(b), grad_rows = iterable(grad);
  for_each_iterator(gpu, {&out, &a_rows, &b_rows, &grad_rows}, [&](const TensorIterator& iterator) {
    iterator.launch(gpu, shader_name("binary_backward", out.dtype()),
                    {line_of(op), static_cast<std::uint32_t>(operand)});
  });
}

void compare(CompareOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const Tensor a_rows = iterable(a), b_rows = iterable(b);
  for_each_iterator(gpu, {&out, &a_rows, &b_rows}, [&](const TensorIterator& iterator) {
    iterator.launch(gpu, shader_name("compare", a.dtype()), {line_of(op)});
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const Tensor condition_rows = iterable(condition), a_rows = iterable(a), b_rows = iterable(b);
  for_each_iterator(gpu, {&out, &condition_rows, &a_rows, &b_rows}, [&](const TensorIterator& iterator) {
    iterator.launch(gpu, shader_name_by_size("where", out.dtype()), {});
  });
}

// Filling and copying with any strides on both sides, between any two dtypes.

namespace {

/// Truncates; values beyond the range of i32 become the nearest bound, and NaN becomes 0.
std::int32_t to_i32(double value) {
  using Bounds = std::numeric_limits<std::int32_t>;
  if (std::isnan(value)) return 0;
  return static_cast<std::int32_t>(std::clamp<double>(value, Bounds::min(), Bounds::max()));
}

constexpr std::int64_t tile = 32;  // as in transpose.comp

/// A copy between matrices of which one is stored by rows and the other by columns, with up to two axes
/// around them.
struct Transposition {
  TensorIterator::Axis outer{1, {}}, inner{1, {}}, rows, columns;

  std::int64_t matrices() const { return outer.extent * inner.extent; }
  std::int64_t row_tiles() const { return ceil_div(rows.extent, tile); }
  std::int64_t column_tiles() const { return ceil_div(columns.extent, tile); }
  std::int64_t tiles() const { return matrices() * row_tiles() * column_tiles(); }
};

/// The transposition that an iterator describes; nullopt if the plain kernel does as well.
std::optional<Transposition> as_transposition(const TensorIterator& iterator) {
  const auto axes = iterator.axes();
  const TensorIterator::Axis& columns = axes.back();
  if (columns.strides[0] != 1 || columns.strides[1] == 1 || columns.extent < tile / 4) return {};
  const auto is_row_axis = [](const TensorIterator::Axis& axis) { return axis.strides[1] == 1; };
  const auto rows = std::find_if(axes.begin(), axes.end() - 1, is_row_axis);
  if (rows == axes.end() - 1 || rows->extent < tile / 4) return {};
  Transposition result{.rows = *rows, .columns = columns};
  TensorIterator::Axis* const around[] = {&result.inner, &result.outer};
  std::size_t found = 0;
  for (const TensorIterator::Axis& axis : axes.first(axes.size() - 1))
    if (&axis != &*rows) *around[found++] = axis;
  return result;
}

void transpose(Gpu& gpu, const TensorIterator& iterator, const Transposition& t) {
  const Tensor &out = iterator[0], &x = iterator[1];
  Launch launch(gpu, shader_name_by_size("transpose", out.dtype()), {workgroup_size(gpu)});
  launch.write(out).read(x);
  launch.push(t.rows.extent).push(t.columns.extent).push(t.row_tiles()).push(t.column_tiles());
  launch.push(t.matrices()).push(t.inner.extent);
  launch.push(t.rows.strides[0]).push(t.outer.strides[0]).push(t.inner.strides[0]);
  launch.push(t.columns.strides[1]).push(t.outer.strides[1]).push(t.inner.strides[1]);
  launch.work(0, 2.0 * static_cast<double>(iterator.count()) * static_cast<double>(size_of(out.dtype())));
  launch.folded_groups(t.tiles());
}

}  // namespace

void fill(double value, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const bool integers = out.dtype() == DType::i32;
  for_each_iterator(gpu, {&out}, [&](const TensorIterator& iterator) {
    const std::string_view shader = shader_name("fill", out.dtype());
    integers ? iterator.launch(gpu, shader, {}, to_i32(value)) : iterator.launch(gpu, shader, {}, value);
  });
}

void copy(const Tensor& x, const Tensor& out) {
  Gpu& gpu = gpu_of(out);
  const bool converts = x.dtype() != out.dtype();
  const std::string shader = converts ? "copy_to_" + std::string(name_of(out.dtype())) : "copy";
  for_each_iterator(gpu, {&out, &x}, [&](const TensorIterator& iterator) {
    if (!converts && workgroup_size(gpu) >= tile) {
      const auto transposition = as_transposition(iterator);
      if (transposition && transposition->tiles() <= most_groups(gpu))
        return transpose(gpu, iterator, *transposition);
    }
    iterator.launch(gpu, shader_name(shader, x.dtype()), {});
  });
}

}  // namespace heed::vulkan
