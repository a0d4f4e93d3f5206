#include "heed/core/elementwise.h"

#include "heed/backends/cpu/elementwise_rows.h"
#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/strided.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

// The elementwise kernels. Strided operands are read in segments, which the row functions
// (elementwise_rows.cpp) process with SIMD. The output may share memory with a contiguous input: each
// segment is read before it is written.

namespace heed::cpu {
namespace {

constexpr std::int64_t task_elements = 16 << 10;  // 5 to 10 us of work

double traffic(const Tensor& out, int inputs) {
  return static_cast<double>(out.count()) * static_cast<double>(size_of(out.dtype())) * (inputs + 1);
}

/// The tensor itself, or a contiguous copy if its rows are not contiguous but another axis is, as in a
/// transposed matrix: copying it tile by tile is several times faster than gathering its rows.
Tensor walkable(const Tensor& x) {
  const MergedLayout layout(x.shape(), x.strides());
  if (layout.inner_stride() <= 1 || x.count() < task_elements) return x;
  if (std::find(layout.strides.begin(), layout.strides.end(), 1) == layout.strides.end()) return x;
  const Tensor rows = Tensor::empty(x.shape(), x.dtype());
  copy(x, rows);
  return rows;
}

}  // namespace

void unary(UnaryOp op, UnaryParams params, const Tensor& x, const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, traffic(out, 1));
  const Tensor x_rows = walkable(x);
  with_floating_type(name_of(op), out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data<T>();
    parallel_ranges(out.count(), task_elements, [&](std::int64_t begin, std::int64_t end) {
      SegmentReader<T> reader(x_rows);
      for_each_segment(
          begin, end,
          [&](std::int64_t at, std::int64_t count, const T* from) {
            unary_row(op, params, from, to + at, count);
          },
          reader);
    });
  });
}

void unary_backward(UnaryOp op, UnaryParams params, const Tensor& saved, const Tensor& grad,
                    const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, traffic(out, 2));
  const Tensor saved_rows = walkable(saved), grad_rows = walkable(grad);
  with_floating_type(name_of(op), out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data<T>();
    parallel_ranges(out.count(), task_elements, [&](std::int64_t begin, std::int64_t end) {
      SegmentReader<T> saved_reader(saved_rows), grad_reader(grad_rows);
      for_each_segment(
          begin, end,
          [&](std::int64_t at, std::int64_t count, const T* s, const T* g) {
            unary_backward_row(op, params, s, g, to + at, count);
          },
          saved_reader, grad_reader);
    });
  });
}

void binary(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, traffic(out, 2));
  const Tensor a_rows = walkable(a), b_rows = walkable(b);
  with_element_type(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data<T>();
    parallel_ranges(out.count(), task_elements, [&](std::int64_t begin, std::int64_t end) {
      SegmentReader<T> a_reader(a_rows), b_reader(b_rows);
      for_each_segment(
          begin, end,
          [&](std::int64_t at, std::int64_t count, const T* left, const T* right) {
            binary_row(op, left, right, to + at, count);
          },
          a_reader, b_reader);
    });
  });
}

void binary_backward(BinaryOp op, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                     const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, traffic(out, 3));
  const Tensor a_rows = walkable(a), b_rows = walkable(b), grad_rows = walkable(grad);
  with_floating_type(name_of(op), out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data<T>();
    parallel_ranges(out.count(), task_elements, [&](std::int64_t begin, std::int64_t end) {
      SegmentReader<T> a_reader(a_rows), b_reader(b_rows), grad_reader(grad_rows);
      for_each_segment(
          begin, end,
          [&](std::int64_t at, std::int64_t count, const T* left, const T* right, const T* g) {
            binary_backward_row(op, operand, left, right, g, to + at, count);
          },
          a_reader, b_reader, grad_reader);
    });
  });
}

void compare(CompareOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, traffic(out, 2));
  const Tensor a_rows = walkable(a), b_rows = walkable(b);
  with_element_type(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto* to = out.data<std::int32_t>();
    parallel_ranges(out.count(), task_elements, [&](std::int64_t begin, std::int64_t end) {
      SegmentReader<T> a_reader(a_rows), b_reader(b_rows);
      for_each_segment(
          begin, end,
          [&](std::int64_t at, std::int64_t count, const T* left, const T* right) {
            compare_row(op, left, right, to + at, count);
          },
          a_reader, b_reader);
    });
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) {
  const ProfileScope profile("where", 0, traffic(out, 3));
  const Tensor condition_rows = walkable(condition), a_rows = walkable(a), b_rows = walkable(b);
  with_element_type(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* to = out.data<T>();
    parallel_ranges(out.count(), task_elements, [&](std::int64_t begin, std::int64_t end) {
      SegmentReader<std::int32_t> condition_reader(condition_rows);
      SegmentReader<T> a_reader(a_rows), b_reader(b_rows);
      for_each_segment(
          begin, end,
          [&](std::int64_t at, std::int64_t count, const std::int32_t* c, const T* left, const T* right) {
            select_row(c, left, right, to + at, count);
          },
          condition_reader, a_reader, b_reader);
    });
  });
}

}  // namespace heed::cpu
