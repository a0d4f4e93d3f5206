// SIMD helpers that the kernels share: partial vectors, lane sums and the
// exponential; included once per target.
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

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

/// A whole vector of a row; `Rest` is the partial one at the end of the row. for_each_vector passes either
/// to kernels written for both.
struct Whole {
  template <class D, class T = hn::TFromD<D>>
  HWY_INLINE hn::Vec<D> load(D d, const T* from) const {
    return hn::LoadU(d, from);
  }
  template <class D, class T = hn::TFromD<D>>
  HWY_INLINE void store(hn::Vec<D> v, D d, T* to) const {
    hn::StoreU(v, d, to);
  }
  /// v with `other` in the lanes beyond the end.
  template <class D>
  HWY_INLINE hn::Vec<D> or_beyond(D, hn::Vec<D> v, hn::TFromD<D>) const {
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
  HWY_INLINE hn::Vec<D> or_beyond(D d, hn::Vec<D> v, hn::TFromD<D> other) const {
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

/// e^x within one unit in the last place for f32; results below 2e-38 become 0, NaN stays
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
    const auto bounded = hn::Min(hn::Set(d, 89.0f), x);  // with this operand order x86 keeps a NaN
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

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
