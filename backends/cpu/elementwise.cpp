#include <algorithm>
#include <functional>
#include <tuple>

#include "heed/backends/cpu/operands.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

// The elementwise kernels. Strided operands are read in segments, which row functions process with SIMD. The
// output may share memory with a contiguous input: each segment is read before it is written.

#ifndef HEED_BACKENDS_CPU_ELEMENTWISE_ONCE
#define HEED_BACKENDS_CPU_ELEMENTWISE_ONCE
namespace heed::cpu {

/// The functions that are compiled for each instruction set. They process contiguous rows on the
/// calling thread, and their output may be the same memory as any input. For i32 there are only
/// `binary` and `compare`.
template <class T>
struct RowFunctions {
  void (*binary)(BinaryOp, const T* a, const T* b, T* out, std::int64_t count);
  void (*compare)(CompareOp, const T* a, const T* b, std::int32_t* out, std::int64_t count);
  void (*unary)(UnaryOp, UnaryParams, const T* x, T* out, std::int64_t count) = nullptr;
  void (*unary_backward)(UnaryOp, UnaryParams, const T* saved, const T* grad, T* out,
                         std::int64_t count) = nullptr;
  void (*binary_backward)(BinaryOp, int operand, const T* a, const T* b, const T* grad, T* out,
                          std::int64_t count) = nullptr;
};
using AllRowFunctions = std::tuple<RowFunctions<float>, RowFunctions<double>, RowFunctions<std::int32_t>>;

}  // namespace heed::cpu
#endif

// --- rows --------------------------------------------------------------------------------------------------
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
void unary_row(UnaryOp op, UnaryParams params, const T* x, T* out, std::int64_t count) {
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
void unary_backward_row(UnaryOp op, UnaryParams params, const T* saved, const T* grad, T* out,
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
void binary_row(BinaryOp op, const T* a, const T* b, T* out, std::int64_t count) {
  using V = Lanes<T>;
  switch (op) {
#define HEED_BINARY(name, ...)                                                                     \
  case BinaryOp::name:                                                                             \
    if constexpr (binary_ops::name##_op::integers_too || !std::is_integral_v<T>)                   \
      map_lanes(                                                                                   \
          out, count, [](V u, V v) HWY_ATTR { return binary_ops::name##_op::value(u, v); }, a, b); \
    return;
#include "heed/core/elementwise.def"
  }
}

template <int operand, class T>
void binary_backward_row_with(BinaryOp op, const T* a, const T* b, const T* grad, T* out,
                              std::int64_t count) {
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
void binary_backward_row(BinaryOp op, int operand, const T* a, const T* b, const T* grad, T* out,
                         std::int64_t count) {
  operand == 0 ? binary_backward_row_with<0>(op, a, b, grad, out, count)
               : binary_backward_row_with<1>(op, a, b, grad, out, count);
}

template <class T>
void compare_row(CompareOp op, const T* a_row, const T* b_row, std::int32_t* out, std::int64_t count) {
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

AllRowFunctions row_functions() {
  const auto of_type = []<class T>(T) {
    return RowFunctions<T>{binary_row<T>, compare_row<T>, unary_row<T>, unary_backward_row<T>,
                           binary_backward_row<T>};
  };
  return {of_type(float()), of_type(double()), {binary_row<std::int32_t>, compare_row<std::int32_t>}};
}

}  // namespace
}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(row_functions);

namespace {

template <class T>
RowFunctions<T> rows() {
  return std::get<RowFunctions<T>>(HWY_DYNAMIC_DISPATCH(row_functions)());
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

/// Calls row(inputs..., out, count) for segments of all operands, whose element types are From.
template <class... From, class To, class Row, class... Tensors>
void by_segments(const Tensor& out, To* to, const Row& row, const Tensors&... x) {
  const auto run = [&](const auto&... inputs) {
    parallel_ranges(out.count(), task_elements, [&](std::int64_t begin, std::int64_t end) {
      const auto segment = [&](std::int64_t at, std::int64_t count, const From*... from) {
        row(from..., to + at, count);
      };
      for_each_segment(begin, end, segment, SegmentReader<From>(inputs)...);
    });
  };
  run(walkable(x)...);
}

}  // namespace

void unary(UnaryOp op, UnaryParams params, const Tensor& x, const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, 2 * bytes_of(out));
  with_floating_type(out.dtype(), [&]<class T>(T) {
    by_segments<T>(out, out.data<T>(), std::bind_front(rows<T>().unary, op, params), x);
  });
}

void unary_backward(UnaryOp op, UnaryParams params, const Tensor& saved, const Tensor& grad,
                    const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, 3 * bytes_of(out));
  with_floating_type(out.dtype(), [&]<class T>(T) {
    by_segments<T, T>(out, out.data<T>(), std::bind_front(rows<T>().unary_backward, op, params), saved, grad);
  });
}

void binary(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, 3 * bytes_of(out));
  with_element_type(out.dtype(), [&]<class T>(T) {
    by_segments<T, T>(out, out.data<T>(), std::bind_front(rows<T>().binary, op), a, b);
  });
}

void binary_backward(BinaryOp op, int operand, const Tensor& a, const Tensor& b, const Tensor& grad,
                     const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, 4 * bytes_of(out));
  with_floating_type(out.dtype(), [&]<class T>(T) {
    by_segments<T, T, T>(out, out.data<T>(), std::bind_front(rows<T>().binary_backward, op, operand), a, b,
                         grad);
  });
}

void compare(CompareOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  const ProfileScope profile(name_of(op), 0, 3 * bytes_of(out));
  with_element_type(a.dtype(), [&]<class T>(T) {
    by_segments<T, T>(out, out.data<std::int32_t>(), std::bind_front(rows<T>().compare, op), a, b);
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) {
  const ProfileScope profile("where", 0, 4 * bytes_of(out));
  with_element_type(out.dtype(), [&]<class T>(T) {
    by_segments<std::int32_t, T, T>(out, out.data<T>(), select_row<T>, condition, a, b);
  });
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
