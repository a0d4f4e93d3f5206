#include "heed/backends/cpu/kernels.h"
#include "heed/backends/cpu/thread_pool.h"
#include "heed/core/profile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
//
#include "heed/backends/cpu/math-inl.h"

// Rotary positions (arXiv 2104.09864): pairs of elements turned by the angles of their positions.

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
struct Rotary {
  using D = hn::ScalableTag<T>;
  const T *x, *cosines, *sines;
  std::int64_t heads, half;
  T direction;  // 1, or -1 to turn back
  T* out;

  /// All heads of one position of one sample, the `row`th of all.
  void turn(std::int64_t row, std::int64_t position) const {
    const D d;
    const auto forth = hn::Set(d, direction);
    const T *cosine = cosines + position * half, *sine = sines + position * half;
    for (std::int64_t head = row * heads; head < (row + 1) * heads; ++head) {
      const T *first = x + head * 2 * half, *second = first + half;
      T* const to = out + head * 2 * half;
      for_each_vector(d, half, [&](auto part, std::int64_t i) HWY_ATTR {
        const auto a = part.load(d, first + i), b = part.load(d, second + i);
        const auto c = part.load(d, cosine + i), s = hn::Mul(forth, part.load(d, sine + i));
        part.store(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, to + i);
        part.store(hn::MulAdd(a, s, hn::Mul(b, c)), d, to + half + i);
      });
    }
  }
};

template <class T>
void rotary_rows(const Tensor& x, const Tensor& cosines, const Tensor& sines, double direction,
                 const Tensor& out) {
  const std::int64_t positions = x.size(1), width = x.size(2) * x.size(3);
  const Rotary<T> kernel{x.data<T>(),   cosines.data<T>(),         sines.data<T>(), x.size(2),
                         x.size(3) / 2, static_cast<T>(direction), out.data<T>()};
  parallel_ranges(x.size(0) * positions, std::max<std::int64_t>(1, 16384 / width),
                  [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
                    for (std::int64_t row = begin; row < end; ++row) kernel.turn(row, row % positions);
                  });
}

void rotary_tensor(const Tensor& x, const Tensor& cosines, const Tensor& sines, double direction,
                   const Tensor& out) {
  x.dtype() == DType::f64 ? rotary_rows<double>(x, cosines, sines, direction, out)
                          : rotary_rows<float>(x, cosines, sines, direction, out);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(rotary_tensor);

void rotary_forward(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Tensor& out) {
  if (x.count() == 0) return;
  const ProfileScope profile("rotary", 0, 2.0 * static_cast<double>(x.count()) * size_of(x.dtype()));
  HWY_DYNAMIC_DISPATCH(rotary_tensor)(x, cosines, sines, 1, out);
}

void rotary_backward(const Tensor& grad, const Tensor& cosines, const Tensor& sines, const Tensor& dx) {
  if (grad.count() == 0) return;
  const ProfileScope profile("rotary backward", 0,
                             2.0 * static_cast<double>(grad.count()) * size_of(grad.dtype()));
  HWY_DYNAMIC_DISPATCH(rotary_tensor)(grad, cosines, sines, -1, dx);
}

}  // namespace heed::cpu
#endif
