#include "heed/backends/cpu/find_above.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/find_above.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Four vectors at a time, because nearly all of them hold nothing.
template <class T>
std::int64_t FindAbove(const T* HWY_RESTRICT x, std::int64_t from, std::int64_t count, T bound) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto limit = hn::Set(d, bound);
  std::int64_t i = from;
  const auto above = [&](std::int64_t at) HWY_ATTR {
    const auto v = hn::LoadU(d, x + at);
    if constexpr (hwy::IsFloat<T>()) {
      return hn::Not(hn::Le(v, limit));
    } else {
      return hn::Gt(v, limit);
    }
  };
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto some = hn::Or(above(i), above(i + lanes)),
               more = hn::Or(above(i + 2 * lanes), above(i + 3 * lanes));
    if (!hn::AllFalse(d, hn::Or(some, more))) break;
  }
  for (; i < count; ++i)
    if (!(x[i] <= bound)) return i;
  return count;
}

std::int64_t FindAboveF32(const float* x, std::int64_t from, std::int64_t count, float bound) {
  return FindAbove(x, from, count, bound);
}

std::int64_t FindAboveF64(const double* x, std::int64_t from, std::int64_t count, double bound) {
  return FindAbove(x, from, count, bound);
}

std::int64_t FindAboveI32(const std::int32_t* x, std::int64_t from, std::int64_t count, std::int32_t bound) {
  return FindAbove(x, from, count, bound);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(FindAboveF32);
HWY_EXPORT(FindAboveF64);
HWY_EXPORT(FindAboveI32);

template <>
std::int64_t find_above(const float* x, std::int64_t from, std::int64_t count, float bound) {
  return HWY_DYNAMIC_DISPATCH(FindAboveF32)(x, from, count, bound);
}

template <>
std::int64_t find_above(const double* x, std::int64_t from, std::int64_t count, double bound) {
  return HWY_DYNAMIC_DISPATCH(FindAboveF64)(x, from, count, bound);
}

template <>
std::int64_t find_above(const std::int32_t* x, std::int64_t from, std::int64_t count, std::int32_t bound) {
  return HWY_DYNAMIC_DISPATCH(FindAboveI32)(x, from, count, bound);
}

}  // namespace heed::cpu
#endif
