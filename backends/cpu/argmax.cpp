#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/argmax.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"
#include "heed/core/checked.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

constexpr std::int64_t task_size = 32768;  // elements worth a task of their own
constexpr std::int64_t tile_width = 512;   // columns followed at once

/// True when `x` takes the place of `best`; a NaN counts as the largest, as it does for the maximum itself.
template <class T>
HWY_INLINE bool beats(T x, T best) {
  return x > best || (x != x && best == best);
}

/// One tile of columns; x [n, stride], out [width].
template <class T>
void argmax_columns(const T* x, std::int64_t n, std::int64_t stride, std::int64_t width, std::int32_t* out) {
  T best[tile_width];
  std::copy_n(x, width, best);
  std::fill_n(out, width, 0);
  for (std::int64_t row = 1; row < n; ++row) {
    for (std::int64_t j = 0; j < width; ++j) {
      const T value = x[row * stride + j];
      const bool better = beats(value, best[j]);
      best[j] = better ? value : best[j];
      out[j] = better ? static_cast<std::int32_t>(row) : out[j];
    }
  }
}

/// The first position in [0, n) where condition(vector), a mask of lanes, holds; n when there is none.
template <class D, class Condition>
HWY_INLINE std::int64_t find_first(D d, const hn::TFromD<D>* x, std::int64_t n, Condition condition) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const std::intptr_t at = hn::FindFirstTrue(d, condition(hn::LoadU(d, x + i)));
    if (at >= 0) return i + at;
  }
  if (i == n) return n;
  const std::intptr_t at = hn::FindFirstTrue(d, condition(load_n(d, x + i, n - i)));
  return at < 0 ? n
                : std::min(n, i + at);  // the lanes beyond the end may match, but only after those before it
}

/// The largest of the row, then where it first stands: the second pass reads the cache.
template <class T>
std::int64_t argmax_row(const T* x, std::int64_t n) {
  const hn::ScalableTag<T> d;
  auto best = hn::Set(d, x[0]);
  [[maybe_unused]] auto unordered = hn::FirstN(d, 0);
  for_each_vector(d, n, [&](auto part, std::int64_t i) HWY_ATTR {
    const auto v = part.or_beyond(d, part.load(d, x + i), x[0]);
    if constexpr (std::is_floating_point_v<T>) unordered = hn::Or(unordered, hn::IsNaN(v));
    best = hn::Max(best, v);
  });
  if constexpr (std::is_floating_point_v<T>) {
    if (!hn::AllFalse(d, unordered))
      return find_first(d, x, n, [&](auto v) HWY_ATTR { return hn::IsNaN(v); });
  }
  const auto largest = hn::MaxOfLanes(d, best);
  return find_first(d, x, n, [&](auto v) HWY_ATTR { return hn::Eq(v, largest); });
}

template <class T>
void argmax_as(const Tensor& x, const Tensor& out) {
  const std::int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* from = x.data<T>();
  std::int32_t* to = out.data<std::int32_t>();
  const std::int64_t width = std::min(inner, tile_width), tiles = ceil_div(inner, tile_width);
  const std::int64_t grain = std::max<std::int64_t>(1, task_size / (n * width));
  parallel_ranges(outer * tiles, grain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t o = task / tiles, left = task % tiles * tile_width;
      const T* values = from + o * n * inner + left;
      if (inner == 1) {
        to[o] = static_cast<std::int32_t>(argmax_row(values, n));
      } else {
        argmax_columns(values, n, inner, std::min(tile_width, inner - left), to + o * inner + left);
      }
    }
  });
}

void argmax_tensor(const Tensor& x, const Tensor& out) {
  switch (x.dtype()) {
    case DType::f32:
      return argmax_as<float>(x, out);
    case DType::f64:
      return argmax_as<double>(x, out);
    case DType::i32:
      return argmax_as<std::int32_t>(x, out);
    case DType::f16:  // not on the CPU: Tensor::empty refuses
    case DType::bf16:
      break;
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(argmax_tensor);

void argmax(const Tensor& x, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("argmax", 0, static_cast<double>(x.count()) * size_of(x.dtype()));
  HWY_DYNAMIC_DISPATCH(argmax_tensor)(x, out);
}

}  // namespace heed::cpu
#endif
