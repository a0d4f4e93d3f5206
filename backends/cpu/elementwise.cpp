#include "heed/backends/cpu/strided.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/backends/kernels.h"
#include "heed/base/error.h"
#include "heed/core/profile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

// The elementwise kernels. Strided operands are read in segments, which row functions process with SIMD. The
// output may share memory with a contiguous input: each segment is read before it is written.

// --- rows: contiguous memory, on the calling thread --------------------------------------------------------
// Every line of core/elementwise.def becomes a struct with the operation and its
// derivative, and a switch case. T is float or double; for operations marked ANY also std::int32_t.

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {
namespace {

namespace unary_ops {
#define HEED_UNARY(name, y_of_x, saved, dydx, low, high)                                             \
  struct name##_op {                                                                                 \
    template <class V>                                                                               \
    static HWY_INLINE V value([[maybe_unused]] V x, [[maybe_unused]] V p, [[maybe_unused]] V q) {    \
      return y_of_x;                                                                                 \
    }                                                                                                \
    /* `saved` is x or y, whichever the expression uses. */                                          \
    template <class V>                                                                               \
    static HWY_INLINE V derivative([[maybe_unused]] V x, [[maybe_unused]] V y, [[maybe_unused]] V p, \
                                   [[maybe_unused]] V q) {                                           \
      return dydx;                                                                                   \
    }                                                                                                \
  };
#include "heed/core/elementwise.def"
}  // namespace unary_ops

enum class Types { ANY, FLOAT };

namespace binary_ops {
#define HEED_BINARY(name, types, y_of_ab, dyda, dydb)                            \
  struct name##_op {                                                             \
    static constexpr bool integers_too = Types::types == Types::ANY;             \
    template <class V>                                                           \
    static HWY_INLINE V value([[maybe_unused]] V a, [[maybe_unused]] V b) {      \
      return y_of_ab;                                                            \
    }                                                                            \
    template <int operand, class V>                                              \
    static HWY_INLINE V derivative([[maybe_unused]] V a, [[maybe_unused]] V b) { \
      if constexpr (operand == 0) {                                              \
        return dyda;                                                             \
      } else {                                                                   \
        return dydb;                                                             \
      }                                                                          \
    }                                                                            \
  };
#include "heed/core/elementwise.def"
}  // namespace binary_ops

/// out[i] = f(inputs[i]...), a vector at a time. The last, partial vector uses the same instructions.
template <class T, class Function, class... Inputs>
HWY_INLINE void map_lanes(T* out, std::int64_t count, Function f, const Inputs*... inputs) {
  using V = Lanes<T>;
  const typename V::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(f(V(hn::LoadU(d, inputs + i))...).v, d, out + i);
  if (i < count) store_n(f(V(load_n(d, inputs + i, count - i))...).v, d, out + i, count - i);
}

template <class T>
void unary_row_of(UnaryOp op, UnaryParams params, const T* x, T* out, std::int64_t count) {
  using V = Lanes<T>;
  const V p(params.p), q(params.q);
  switch (op) {
#define HEED_UNARY(name, ...) \
  case UnaryOp::name:         \
    return map_lanes(         \
        out, count, [=](V v) HWY_ATTR { return unary_ops::name##_op::value(v, p, q); }, x);
#include "heed/core/elementwise.def"
  }
}

template <class T>
void unary_backward_row_of(UnaryOp op, UnaryParams params, const T* saved, const T* grad, T* out,
                           std::int64_t count) {
  using V = Lanes<T>;
  const V p(params.p), q(params.q);
  switch (op) {
#define HEED_UNARY(name, ...)                                                                            \
  case UnaryOp::name:                                                                                    \
    return map_lanes(                                                                                    \
        out, count, [=](V s, V g) HWY_ATTR { return g * unary_ops::name##_op::derivative(s, s, p, q); }, \
        saved, grad);
#include "heed/core/elementwise.def"
  }
}

template <class T>
void binary_row_of(BinaryOp op, const T* a, const T* b, T* out, std::int64_t count) {
  using V = Lanes<T>;
  switch (op) {
#define HEED_BINARY(name, ...)                                                                     \
  case BinaryOp::name:                                                                             \
    if constexpr (binary_ops::name##_op::integers_too || !std::is_integral_v<T>) {                 \
      return map_lanes(                                                                            \
          out, count, [](V u, V v) HWY_ATTR { return binary_ops::name##_op::value(u, v); }, a, b); \
    } else {                                                                                       \
      fail(name_of(op), ": needs a floating dtype, got i32");                                      \
    }
#include "heed/core/elementwise.def"
  }
}

template <int operand, class T>
void binary_backward_row_of(BinaryOp op, const T* a, const T* b, const T* grad, T* out, std::int64_t count) {
  using V = Lanes<T>;
  switch (op) {
#define HEED_BINARY(name, ...)                                                                  \
  case BinaryOp::name:                                                                          \
    return map_lanes(                                                                           \
        out, count,                                                                             \
        [](V u, V v, V g)                                                                       \
            HWY_ATTR { return g * binary_ops::name##_op::template derivative<operand>(u, v); }, \
        a, b, grad);
#include "heed/core/elementwise.def"
  }
}

template <class T>
void compare_row_of(CompareOp op, const T* a_row, const T* b_row, std::int32_t* out, std::int64_t count) {
  switch (op) {
#define HEED_COMPARE(name, condition)          \
  case CompareOp::name:                        \
    for (std::int64_t i = 0; i < count; ++i) { \
      const T a = a_row[i], b = b_row[i];      \
      out[i] = (condition) ? 1 : 0;            \
    }                                          \
    break;
#include "heed/core/elementwise.def"
  }
}

// Highway's dispatch tables need plain functions.
void unary_f32(UnaryOp op, UnaryParams params, const float* x, float* out, std::int64_t count) {
  unary_row_of(op, params, x, out, count);
}
void unary_f64(UnaryOp op, UnaryParams params, const double* x, double* out, std::int64_t count) {
  unary_row_of(op, params, x, out, count);
}
void unary_backward_f32(UnaryOp op, UnaryParams params, const float* saved, const float* grad, float* out,
                        std::int64_t count) {
  unary_backward_row_of(op, params, saved, grad, out, count);
}
void unary_backward_f64(UnaryOp op, UnaryParams params, const double* saved, const double* grad, double* out,
                        std::int64_t count) {
  unary_backward_row_of(op, params, saved, grad, out, count);
}
void binary_f32(BinaryOp op, const float* a, const float* b, float* out, std::int64_t count) {
  binary_row_of(op, a, b, out, count);
}
void binary_f64(BinaryOp op, const double* a, const double* b, double* out, std::int64_t count) {
  binary_row_of(op, a, b, out, count);
}
void binary_i32(BinaryOp op, const std::int32_t* a, const std::int32_t* b, std::int32_t* out,
                std::int64_t count) {
  binary_row_of(op, a, b, out, count);
}
template <class T>
void binary_backward_of(BinaryOp op, int operand, const T* a, const T* b, const T* grad, T* out,
                        std::int64_t count) {
  if (operand == 0) {
    binary_backward_row_of<0>(op, a, b, grad, out, count);
  } else {
    binary_backward_row_of<1>(op, a, b, grad, out, count);
  }
}
void binary_backward_f32(BinaryOp op, int operand, const float* a, const float* b, const float* grad,
                         float* out, std::int64_t count) {
  binary_backward_of(op, operand, a, b, grad, out, count);
}
void binary_backward_f64(BinaryOp op, int operand, const double* a, const double* b, const double* grad,
                         double* out, std::int64_t count) {
  binary_backward_of(op, operand, a, b, grad, out, count);
}
void compare_f32(CompareOp op, const float* a, const float* b, std::int32_t* out, std::int64_t count) {
  compare_row_of(op, a, b, out, count);
}
void compare_f64(CompareOp op, const double* a, const double* b, std::int32_t* out, std::int64_t count) {
  compare_row_of(op, a, b, out, count);
}
void compare_i32(CompareOp op, const std::int32_t* a, const std::int32_t* b, std::int32_t* out,
                 std::int64_t count) {
  compare_row_of(op, a, b, out, count);
}

}  // namespace
}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(unary_f32);
HWY_EXPORT(unary_f64);
HWY_EXPORT(unary_backward_f32);
HWY_EXPORT(unary_backward_f64);
HWY_EXPORT(binary_f32);
HWY_EXPORT(binary_f64);
HWY_EXPORT(binary_i32);
HWY_EXPORT(binary_backward_f32);
HWY_EXPORT(binary_backward_f64);
HWY_EXPORT(compare_f32);
HWY_EXPORT(compare_f64);
HWY_EXPORT(compare_i32);

namespace {

// Any output may be the same memory as any input.
void unary_row(UnaryOp op, UnaryParams params, const float* x, float* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(unary_f32)(op, params, x, out, count);
}
void unary_row(UnaryOp op, UnaryParams params, const double* x, double* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(unary_f64)(op, params, x, out, count);
}
void unary_backward_row(UnaryOp op, UnaryParams params, const float* saved, const float* grad, float* out,
                        std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(unary_backward_f32)(op, params, saved, grad, out, count);
}
void unary_backward_row(UnaryOp op, UnaryParams params, const double* saved, const double* grad, double* out,
                        std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(unary_backward_f64)(op, params, saved, grad, out, count);
}
void binary_row(BinaryOp op, const float* a, const float* b, float* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(binary_f32)(op, a, b, out, count);
}
void binary_row(BinaryOp op, const double* a, const double* b, double* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(binary_f64)(op, a, b, out, count);
}
void binary_row(BinaryOp op, const std::int32_t* a, const std::int32_t* b, std::int32_t* out,
                std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(binary_i32)(op, a, b, out, count);
}
void binary_backward_row(BinaryOp op, int operand, const float* a, const float* b, const float* grad,
                         float* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(binary_backward_f32)(op, operand, a, b, grad, out, count);
}
void binary_backward_row(BinaryOp op, int operand, const double* a, const double* b, const double* grad,
                         double* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(binary_backward_f64)(op, operand, a, b, grad, out, count);
}
void compare_row(CompareOp op, const float* a, const float* b, std::int32_t* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(compare_f32)(op, a, b, out, count);
}
void compare_row(CompareOp op, const double* a, const double* b, std::int32_t* out, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(compare_f64)(op, a, b, out, count);
}
void compare_row(CompareOp op, const std::int32_t* a, const std::int32_t* b, std::int32_t* out,
                 std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(compare_i32)(op, a, b, out, count);
}

/// out[i] = condition[i] != 0 ? a[i] : b[i]
template <class T>
void select_row(const std::int32_t* condition, const T* a, const T* b, T* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T yes = a[i], no = b[i];  // reading both lets the compiler vectorise
    out[i] = condition[i] != 0 ? yes : no;
  }
}

// --- the kernels -------------------------------------------------------------------------------------------

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
#endif  // HWY_ONCE
