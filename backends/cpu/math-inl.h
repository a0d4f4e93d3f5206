// SIMD helpers that the kernels share: partial vectors, lane sums, exponential and logarithm, and one SIMD
// type with the operators and functions that core/elementwise.def uses. Included once per target.
#if defined(HEED_BACKENDS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_BACKENDS_CPU_MATH_INL_H_
#undef HEED_BACKENDS_CPU_MATH_INL_H_
#else
#define HEED_BACKENDS_CPU_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls body(0), ... body(N - 1) with constants, so that arrays indexed by them stay in registers.
template <int N, class Body>
HWY_INLINE void unrolled(Body body) {
  const auto all = [&]<int... I>(std::integer_sequence<int, I...>) HWY_ATTR {
    (body(std::integral_constant<int, I>()), ...);
  };
  all(std::make_integer_sequence<int, N>());
}

/// Loads the first `count` lanes, 0 < count < lanes; the others are 0. Reads no memory beyond them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_n(D d, const T* from, std::int64_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T buffer[hn::MaxLanes(D())] = {};
  std::memcpy(buffer, from, static_cast<std::size_t>(count) * sizeof(T));
  return hn::Load(d, buffer);
#else
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
#endif
}

/// Writes the first `count` lanes, 0 < count < lanes.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_n(hn::Vec<D> value, D d, T* to, std::int64_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T buffer[hn::MaxLanes(D())];
  hn::Store(value, d, buffer);
  std::memcpy(to, buffer, static_cast<std::size_t>(count) * sizeof(T));
#else
  hn::BlendedStore(value, hn::FirstN(d, static_cast<std::size_t>(count)), d, to);
#endif
}

/// A whole vector of a row; `Rest` is the partial one at the end of the row. for_each_vector passes
/// either to kernels written for both.
struct Whole {
  template <class D, class T = hn::TFromD<D>>
  HWY_INLINE hn::Vec<D> load(D d, const T* from) const {
    return hn::LoadU(d, from);
  }
  template <class D, class T = hn::TFromD<D>>
  HWY_INLINE void store(hn::Vec<D> v, D d, T* to) const {
    hn::StoreU(v, d, to);
  }
  /// Returns v with `other` in the lanes beyond the end.
  template <class D>
  HWY_INLINE hn::Vec<D> fill_tail(D, hn::Vec<D> v, hn::TFromD<D>) const {
    return v;
  }
};

struct Rest {
  std::int64_t count;

  template <class D, class T = hn::TFromD<D>>
  HWY_INLINE hn::Vec<D> load(D d, const T* from) const {
    return load_n(d, from, count);
  }
  template <class D, class T = hn::TFromD<D>>
  HWY_INLINE void store(hn::Vec<D> v, D d, T* to) const {
    store_n(v, d, to, count);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> fill_tail(D d, hn::Vec<D> v, hn::TFromD<D> other) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(count)), v, hn::Set(d, other));
  }
};

/// Calls body(part, i) for i = 0, lanes, 2 lanes, ... below n; the body is a lambda with HWY_ATTR.
template <class D, class Body>
HWY_INLINE void for_each_vector(D d, std::int64_t n, Body body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(Whole(), i);
  if (i < n) body(Rest{n - i}, i);
}

/// Returns a vector whose b-th block of 4 lanes is the 4 floats at `x + 4 b stride`.
template <class D>
HWY_INLINE hn::Vec<D> blocks_of_rows(D d, const float* x, std::int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, x);
  } else {
    const hn::Half<D> half;
    constexpr std::int64_t rows = hn::MaxLanes(half);
    return hn::Combine(d, blocks_of_rows(half, x + rows * stride, stride), blocks_of_rows(half, x, stride));
  }
}

/// Transposes 4 columns of as many rows as d has lanes.
template <class D>
HWY_INLINE void transpose_block(D d, const float* x, std::int64_t stride, float* out,
                                std::int64_t out_stride) {
  const auto rows0 = blocks_of_rows(d, x, stride), rows1 = blocks_of_rows(d, x + stride, stride),
             rows2 = blocks_of_rows(d, x + 2 * stride, stride),
             rows3 = blocks_of_rows(d, x + 3 * stride, stride);
  const auto left02 = hn::InterleaveLower(d, rows0, rows2), left13 = hn::InterleaveLower(d, rows1, rows3),
             right02 = hn::InterleaveUpper(d, rows0, rows2), right13 = hn::InterleaveUpper(d, rows1, rows3);
  hn::StoreU(hn::InterleaveLower(d, left02, left13), d, out);
  hn::StoreU(hn::InterleaveUpper(d, left02, left13), d, out + out_stride);
  hn::StoreU(hn::InterleaveLower(d, right02, right13), d, out + 2 * out_stride);
  hn::StoreU(hn::InterleaveUpper(d, right02, right13), d, out + 3 * out_stride);
}

/// Transposes a matrix: out[j, i] = x[i, j].
template <class T>
HWY_INLINE void transpose(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, T* out,
                          std::int64_t out_stride) {
  std::int64_t i = 0;
  const auto by = [&](auto d) HWY_ATTR {
    constexpr std::int64_t step = hn::MaxLanes(d);
    for (; i + step <= rows; i += step) {
      std::int64_t j = 0;
      for (; j + 4 <= columns; j += 4)
        transpose_block(d, x + i * stride + j, stride, out + j * out_stride + i, out_stride);
      for (; j < columns; ++j)
        for (std::int64_t row = i; row < i + step; ++row) out[j * out_stride + row] = x[row * stride + j];
    }
  };
  if constexpr (std::is_same_v<T, float>) {
    by(hn::ScalableTag<float>());
    by(hn::FixedTag<float, 4>());
  }
  for (; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) out[j * out_stride + i] = x[i * stride + j];
}

/// The sum of all lanes, in a fixed order for each target.
template <class D>
HWY_INLINE hn::TFromD<D> lane_sum(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

/// The largest lane; a NaN may or may not win.
template <class D>
HWY_INLINE hn::TFromD<D> lane_max(D d, hn::Vec<D> v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

/// Returns which of the 32-bit integers, as many as d has lanes, are not 0.
template <class D>
HWY_INLINE hn::Mask<D> nonzero_lanes(D d, hn::Vec<hn::Rebind<std::int32_t, D>> integers) {
  const hn::RebindToSigned<D> di;
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(std::int32_t)) {
    return hn::RebindMask(d, hn::Ne(integers, hn::Zero(di)));
  } else {
    return hn::RebindMask(d, hn::Ne(hn::PromoteTo(di, integers), hn::Zero(di)));
  }
}

/// Returns the smaller of a bound and x; NaN in x stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> at_most(D d, hn::TFromD<D> bound, hn::Vec<D> x) {
  const auto bounds = hn::Set(d, bound);
#if HWY_ARCH_X86
  return hn::Min(bounds, x);  // one instruction, which gives its second operand where one is a NaN
#else
  return hn::IfThenElse(hn::Lt(bounds, x), bounds, x);  // NEON's minimum is the number
#endif
}

/// Computes e^x within one unit in the last place for f32; results below 2e-38 become 0, NaN stays
/// NaN. f64 uses the C library.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    // e^x = 2^n e^r with |r| <= log(2) / 2, and e^r = 1 + r + r^2 q(r) with q fitted to a relative error of
    // 3e-9. The result is built as (2 e^r) 2^(n - 1), so that n = 128 needs no special case. Adding 1.5
    // 2^23 rounds to an integer and leaves it in the low bits; with 126 on top these are the exponent field
    // of 2^(n - 1).
    const hn::RebindToUnsigned<D> bits;
    const auto tiny = hn::Lt(x, hn::Set(d, -86.9f));
    const auto bounded = at_most(d, 89.0f, x);
    const auto rounder = hn::Set(d, 12582912.0f + 126.0f);
    const auto rounded = hn::MulAdd(bounded, hn::Set(d, 1.44269504f), rounder);
    const auto n = hn::Sub(rounded, rounder);
    auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), bounded);  // log(2) in two parts
    r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
    auto q = hn::Set(d, 2 * 0.00138144215f);
    q = hn::MulAdd(q, r, hn::Set(d, 2 * 0.00836878505f));
    q = hn::MulAdd(q, r, hn::Set(d, 2 * 0.0416683952f));
    q = hn::MulAdd(q, r, hn::Set(d, 2 * 0.166665201f));
    q = hn::MulAdd(q, r, hn::Set(d, 2 * 0.499999934f));
    q = hn::MulAdd(q, r, hn::Set(d, 2.0f));
    q = hn::MulAdd(q, r, hn::Set(d, 2.0f));
    const auto power = hn::ShiftLeft<23>(hn::BitCast(bits, rounded));
    return hn::IfThenZeroElse(tiny, hn::Mul(q, hn::BitCast(d, power)));
  } else {
    HWY_ALIGN double lanes[hn::MaxLanes(D())];
    hn::Store(x, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = std::exp(lanes[i]);
    return hn::Load(d, lanes);
  }
}

/// Applies f to the lanes of a and b: for functions too rare or too delicate for a polynomial.
template <class D, class Function>
HWY_INLINE hn::Vec<D> for_each_lane(D d, hn::Vec<D> a, hn::Vec<D> b, Function f) {
  using T = hn::TFromD<D>;
  HWY_ALIGN T lanes_a[hn::MaxLanes(D())];
  HWY_ALIGN T lanes_b[hn::MaxLanes(D())];
  hn::Store(a, d, lanes_a);
  hn::Store(b, d, lanes_b);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes_a[i] = f(lanes_a[i], lanes_b[i]);
  return hn::Load(d, lanes_a);
}

/// Computes c[0] + c[1] x + ... + c[n - 1] x^(n - 1) by Horner's rule.
template <class D, std::size_t n>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const float (&c)[n]) {
  auto sum = hn::Set(d, c[n - 1]);
  for (std::size_t i = n - 1; i > 0; --i) sum = hn::MulAdd(sum, x, hn::Set(d, c[i - 1]));
  return sum;
}

/// Computes the natural logarithm, f32, within 2 units in the last place; -infinity at 0, NaN
/// below. x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh s with s = (m - 1) / (m + 1).
template <class D>
HWY_INLINE hn::Vec<D> log_f32(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto subnormal = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
  const auto scaled = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 0x1p24f)), x);
  // Subtracting the bits of sqrt(1/2) puts the exponent of the result above bit 23.
  const auto shifted = hn::Sub(hn::BitCast(di, scaled), hn::Set(di, 0x3f3504f3));
  auto e = hn::ConvertTo(d, hn::ShiftRight<23>(shifted));
  const auto mantissa = hn::Add(hn::And(shifted, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3));
  const auto m = hn::BitCast(d, mantissa);
  e = hn::Sub(e, hn::IfThenElseZero(subnormal, hn::Set(d, 24.0f)));
  const auto one = hn::Set(d, 1.0f);
  const auto f = hn::Sub(m, one);
  const auto s = hn::Div(f, hn::Add(m, one));
  const auto z = hn::Mul(s, s);
  constexpr float artanh[] = {2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9};
  // 2 artanh s = 2 s + s z (2/3 + ...), where 2 s = f - s f is written with the exact f.
  const auto rest = hn::Mul(s, hn::MulSub(z, polynomial(d, z, artanh), f));
  const auto low = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), rest);  // log(2) in two parts
  auto y = hn::MulAdd(e, hn::Set(d, 0.693359375f), hn::Add(f, low));
  const auto infinity = hn::Set(d, HUGE_VALF);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), y, hn::Set(d, NAN));
}

/// Computes the hyperbolic tangent, f32, within 3 units in the last place: x + x^3 P(x^2) near 0, 1
/// - 2 / (e^2|x| + 1) beyond.
template <class D>
HWY_INLINE hn::Vec<D> tanh_f32(D d, hn::Vec<D> x) {
  constexpr float near[] = {-0.333332837f, 0.133315012f, -0.0537444279f, 0.0206537973f, -0.0057208105f};
  const auto square = hn::Mul(x, x);
  const auto small = hn::MulAdd(hn::Mul(x, square), polynomial(d, square, near), x);
  const auto magnitude = hn::Abs(x);
  const auto one = hn::Set(d, 1.0f);
  const auto power = exp(d, hn::Add(magnitude, magnitude));
  const auto large = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(power, one))), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.62f)), small, large);
}

/// Computes the error function, f32, to 2.2e-7: x Q(u) with u = x^2 mapped from [0, 3.925^2] to
/// [-1, 1]. The powers of u stay small there, so one polynomial serves all x; beyond, erf rounds to
/// 1 in f32.
template <class D>
HWY_INLINE hn::Vec<D> erf_f32(D d, hn::Vec<D> x) {
  constexpr float bound = 3.925f;
  constexpr float q[] = {0.360277921f,   -0.179884255f,  0.133932889f,   -0.109089121f,
                         0.0905819908f,  -0.0740833804f, 0.058477629f,   -0.0435257778f,
                         0.0299628079f,  -0.0203252118f, 0.0141607178f,  -0.00746050291f,
                         0.00209332956f, -0.0016386885f, 0.00209073233f, -0.000794036605f};
  const auto u = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.12982271f), hn::Set(d, -1.0f));
  const auto y = hn::Mul(x, polynomial(d, u, q));
  return hn::IfThenElse(hn::Ge(hn::Abs(x), hn::Set(d, bound)), hn::CopySign(hn::Set(d, 1.0f), x), y);
}

/// A vector of T that can be used like a number:
/// `0.5 * x * (1.0 + erf(0.7071067811865476 * x))` compiles as written.
template <class T>
struct Lanes {
  using D = hn::ScalableTag<T>;
  using Vec = hn::Vec<D>;
  static constexpr bool is_f32 = std::is_same_v<T, float>;
  struct Condition {
    hn::Mask<D> mask;
  };

  Vec v;

  HWY_INLINE Lanes(Vec vector) : v(vector) {}
  HWY_INLINE Lanes(double value) : v(hn::Set(D(), static_cast<T>(value))) {}

  friend HWY_INLINE Lanes operator-(Lanes a) { return hn::Neg(a.v); }
  friend HWY_INLINE Lanes operator+(Lanes a, Lanes b) { return hn::Add(a.v, b.v); }
  friend HWY_INLINE Lanes operator-(Lanes a, Lanes b) { return hn::Sub(a.v, b.v); }
  friend HWY_INLINE Lanes operator*(Lanes a, Lanes b) { return hn::Mul(a.v, b.v); }
  friend HWY_INLINE Lanes operator/(Lanes a, Lanes b) { return hn::Div(a.v, b.v); }
  friend HWY_INLINE Condition operator<(Lanes a, Lanes b) { return {hn::Lt(a.v, b.v)}; }
  friend HWY_INLINE Condition operator>(Lanes a, Lanes b) { return {hn::Lt(b.v, a.v)}; }
  friend HWY_INLINE Condition operator<=(Lanes a, Lanes b) { return {hn::Le(a.v, b.v)}; }
  friend HWY_INLINE Condition operator>=(Lanes a, Lanes b) { return {hn::Le(b.v, a.v)}; }
  friend HWY_INLINE Condition operator==(Lanes a, Lanes b) { return {hn::Eq(a.v, b.v)}; }

  friend HWY_INLINE Lanes where(Condition c, Lanes a, Lanes b) { return hn::IfThenElse(c.mask, a.v, b.v); }
  friend HWY_INLINE Lanes max(Lanes a, Lanes b) { return second_where(hn::Lt(a.v, b.v), a, b); }
  friend HWY_INLINE Lanes min(Lanes a, Lanes b) { return second_where(hn::Lt(b.v, a.v), a, b); }
  friend HWY_INLINE Lanes abs(Lanes a) { return hn::Abs(a.v); }
  friend HWY_INLINE Lanes floor(Lanes a) { return hn::Floor(a.v); }
  friend HWY_INLINE Lanes rint(Lanes a) { return hn::Round(a.v); }
  friend HWY_INLINE Lanes sqrt(Lanes a) { return hn::Sqrt(a.v); }
  friend HWY_INLINE Lanes exp(Lanes a) { return HWY_NAMESPACE::exp(D(), a.v); }
  friend HWY_INLINE Lanes log(Lanes a) {
    if constexpr (is_f32) {
      return log_f32(D(), a.v);
    } else {
      return each(a, [](T x) { return std::log(x); });
    }
  }
  friend HWY_INLINE Lanes tanh(Lanes a) {
    if constexpr (is_f32) {
      return tanh_f32(D(), a.v);
    } else {
      return each(a, [](T x) { return std::tanh(x); });
    }
  }
  friend HWY_INLINE Lanes erf(Lanes a) {
    if constexpr (is_f32) {
      return erf_f32(D(), a.v);
    } else {
      return each(a, [](T x) { return std::erf(x); });
    }
  }
  friend HWY_INLINE Lanes sin(Lanes a) {
    return each(a, [](T x) { return std::sin(x); });
  }
  friend HWY_INLINE Lanes cos(Lanes a) {
    return each(a, [](T x) { return std::cos(x); });
  }
  friend HWY_INLINE Lanes pow(Lanes a, Lanes b) {
    return for_each_lane(D(), a.v, b.v, [](T x, T y) { return std::pow(x, y); });
  }

 private:
  template <class Function>
  static HWY_INLINE Lanes each(Lanes a, Function f) {
    return for_each_lane(D(), a.v, a.v, [f](T x, T) { return f(x); });
  }
  /// Returns b under the mask, a elsewhere; a NaN in either gives NaN.
  static HWY_INLINE Lanes second_where(hn::Mask<D> mask, Lanes a, Lanes b) {
    const auto chosen = hn::IfThenElse(mask, b.v, a.v);
    if constexpr (std::is_integral_v<T>)
      return chosen;
    else
      return hn::IfThenElse(hn::IsNaN(b.v), b.v, chosen);
  }
};

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
