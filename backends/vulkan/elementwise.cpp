#include "heed/core/elementwise.h"

#include <algorithm>

#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/tensor_iterator.h"

// The elementwise kernels; the shaders are made from core/elementwise.def, as the kernels of the CPU are.

namespace heed::vulkan {
namespace {

/// The tensor itself, or a contiguous copy of one whose neighbours in memory lie along another axis than the
/// output's, such as a transposed matrix: copying it in tiles costs less than reading it across memory.
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

}  // namespace heed::vulkan
