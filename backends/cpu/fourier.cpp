#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <vector>

#include "heed/backends/cpu/operands.h"
#include "heed/base/error.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

// y = Re(F_n X F_d), a Fourier transform over positions and features, by mixed radices (J. W. Cooley and
// J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965), in the order of
// T. G. Stockham, which needs no permutation. All lanes of a vector are transformed alike:
//
//   1. over features, the rows of as many positions as two vectors have lanes, the first vector as
//      real parts and the second as imaginary parts. By symmetry, half of a real row's result determines the
//      rest, and separates the two:
//      Z[m] = P[m] + i Q[m] and conj Z[d - m] = P[m] - i Q[m];
//   2. over positions, as many features as a vector has lanes;
//   3. y[k, l] = Re Y[k, l], and by the same symmetry y[n - k, d - l].

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/fourier.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, once per target:
#include "heed/backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {
namespace {

enum : int { first_slot = 10, second_slot = 11, turned_slot = 12 };  // of thread_scratch

/// e^(-2 pi i j / n) for all j, and the radices of a transform of length n.
template <class T>
struct Waves {
  std::int64_t n;
  std::vector<std::int64_t> radices;  // 4, then primes in ascending order
  std::vector<T> cosines, sines;

  explicit Waves(std::int64_t length) : n(length) {
    std::int64_t left = n;
    for (std::int64_t f = 4; left > 1; f = f == 4 ? 2 : f == 2 ? 3 : f + 2)
      for (; left % f == 0; left /= f) radices.push_back(f);
    for (std::int64_t j = 0; j < n; ++j) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(n);
      cosines.push_back(static_cast<T>(std::cos(angle)));
      sines.push_back(static_cast<T>(-std::sin(angle)));
    }
  }
  T cosine(std::int64_t j) const { return cosines[static_cast<std::size_t>(j)]; }
  T sine(std::int64_t j) const { return sines[static_cast<std::size_t>(j)]; }
};

template <class T>
class Fourier {
 public:
  Fourier(const Tensor& x, const Tensor& lengths, const Tensor& out)
      : positions_(x.size(1)),
        width_(x.size(2)),
        from_(x.data<T>()),
        to_(out.data<T>()),
        of_features_(width_) {
    for (std::int64_t b = 0; b < x.size(0); ++b) {
      const std::int64_t length = lengths.defined() ? lengths.data<std::int32_t>()[b] : positions_;
      check(length >= 0 && length <= positions_, "fourier: the length of sample ", b, " is ", length,
            ", and x has ", positions_, " positions");
      lengths_.push_back(length);
      of_positions_.try_emplace(length, length);
    }
    half_ = Tensor::empty({x.size(0), blocks() * positions_ * step}, x.dtype());
  }

  void run() {
    const std::int64_t batch = std::ssize(lengths_), groups = ceil_div(positions_, step);
    parallel_ranges(batch * groups, pieces_per_task(task_size, step * width_),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t task = begin; task < end; ++task)
                        transform_features(task / groups, task % groups * step);
                    });
    parallel_ranges(batch * blocks(), pieces_per_task(task_size, step * positions_),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t task = begin; task < end; ++task)
                        transform_positions(task / blocks(), task % blocks());
                    });
  }

 private:
  using D = hn::ScalableTag<T>;
  static constexpr std::int64_t lanes = hn::MaxLanes(D()), step = 2 * lanes;  // a complex number: re, im
  static constexpr std::int64_t task_size = 1 << 15;

  std::int64_t columns() const { return width_ / 2 + 1; }
  std::int64_t blocks() const { return ceil_div(columns(), lanes); }
  /// The complex numbers of a block of columns at a position.
  T* half_at(std::int64_t b, std::int64_t block, std::int64_t position) const {
    return half_.data<T>() + ((b * blocks() + block) * positions_ + position) * step;
  }

  /// Step 1 for 2 * lanes positions from `begin` on; rows beyond the sample become 0.
  void transform_features(std::int64_t b, std::int64_t begin) const {
    const D d;
    const std::int64_t length = lengths_[static_cast<std::size_t>(b)],
                       end = std::min(begin + step, positions_);
    const std::int64_t rows = std::max<std::int64_t>(0, std::min(end, length) - begin);
    T* const beyond = to_ + (b * positions_ + begin + rows) * width_;
    std::fill_n(beyond, (end - begin - rows) * width_, T{0});
    if (rows == 0) return;
    T* const x = thread_scratch<T>(first_slot, static_cast<std::size_t>(width_ * step));
    T* const y = thread_scratch<T>(second_slot, static_cast<std::size_t>(width_ * step));
    if (rows < step) std::fill_n(x, width_ * step, T{0});
    transpose(from_ + (b * positions_ + begin) * width_, width_, rows, width_, x, step);
    const T* const z = transform(of_features_, x, y);

    // The real and imaginary parts of both halves of the rows, by columns, then by rows.
    const std::int64_t padded = blocks() * lanes;
    T* const parts = thread_scratch<T>(turned_slot, static_cast<std::size_t>(4 * padded * lanes));
    std::fill_n(parts, 4 * padded * lanes, T{0});
    const auto half = hn::Set(d, T{0.5});
    for (std::int64_t m = 0; m < columns(); ++m) {
      const T *const one = z + m * step, *const other = z + (m > 0 ? width_ - m : 0) * step;
      const auto re = hn::Mul(half, hn::Load(d, one)), im = hn::Mul(half, hn::Load(d, one + lanes)),
                 other_re = hn::Mul(half, hn::Load(d, other)),
                 other_im = hn::Mul(half, hn::Load(d, other + lanes));
      T* const to = parts + m * lanes;
      hn::Store(hn::Add(re, other_re), d, to);
      hn::Store(hn::Sub(im, other_im), d, to + padded * lanes);
      hn::Store(hn::Add(im, other_im), d, to + 2 * padded * lanes);
      hn::Store(hn::Sub(other_re, re), d, to + 3 * padded * lanes);
    }
    for (std::int64_t block = 0; block < blocks(); ++block)
      for (std::int64_t part = 0; part < 4; ++part) {
        const std::int64_t first = part / 2 * lanes, count = std::clamp<std::int64_t>(rows - first, 0, lanes);
        if (count == 0) continue;
        transpose(parts + (part * padded + block * lanes) * lanes, lanes, lanes, count,
                  half_at(b, block, begin + first) + part % 2 * lanes, step);
      }
  }

  /// Steps 2 and 3 for a block of columns.
  void transform_positions(std::int64_t b, std::int64_t block) const {
    const D d;
    const std::int64_t length = lengths_[static_cast<std::size_t>(b)], left = block * lanes;
    if (length == 0) return;
    T* const y = thread_scratch<T>(first_slot, static_cast<std::size_t>(length * step));
    const T* const z = transform(of_positions_.at(length), half_at(b, block, 0), y);
    const std::int64_t count = std::min(lanes, columns() - left);
    // The columns from `first` to `last` are written a second time, mirrored.
    const std::int64_t last = std::min(left + count - 1, (width_ - 1) / 2),
                       first = std::max<std::int64_t>(left, 1);
    for (std::int64_t k = 0; k < length; ++k) {
      const auto re = hn::Load(d, z + k * step);
      T* const row = to_ + (b * positions_ + k) * width_;
      T* const mirrored = to_ + (b * positions_ + (k > 0 ? length - k : 0)) * width_;
      if (count == lanes)
        hn::StoreU(re, d, row + left);
      else
        store_n(re, d, row + left, count);
      if (first == left && last == left + lanes - 1)
        hn::StoreU(hn::Reverse(d, re), d, mirrored + width_ - last);
      else
        for (std::int64_t l = first; l <= last; ++l) mirrored[width_ - l] = z[k * step + l - left];
    }
  }

  /// Transforms x[0], x[1], ... x[n - 1]; the result is in x or in y.
  static T* transform(const Waves<T>& waves, T* x, T* y) {
    std::int64_t stride = 1, n = waves.n;
    for (const std::int64_t radix : waves.radices) {
      n /= radix;
      // x[q + stride (p + n i)], transformed over i, becomes y[q + stride (radix p + k)].
      for (std::int64_t p = 0; p < n; ++p) {
        const T* const from = x + stride * p * step;
        T* const to = y + stride * radix * p * step;
        if (radix == 4)
          by_four(waves, p * stride, from, stride * n * step, to, stride);
        else
          by_prime(waves, radix, p * stride, from, stride * n * step, to, stride);
      }
      std::swap(x, y);
      stride *= radix;
    }
    return x;
  }

  static HWY_INLINE void by_four(const Waves<T>& waves, std::int64_t angle, const T* from, std::int64_t apart,
                                 T* to, std::int64_t stride) {
    const D d;
    const auto cosine1 = hn::Set(d, waves.cosine(angle)), sine1 = hn::Set(d, waves.sine(angle)),
               cosine2 = hn::Set(d, waves.cosine(2 * angle)), sine2 = hn::Set(d, waves.sine(2 * angle)),
               cosine3 = hn::Set(d, waves.cosine(3 * angle)), sine3 = hn::Set(d, waves.sine(3 * angle));
    const std::int64_t between = stride * step;
    for (std::int64_t q = 0; q < between; q += step) {
      const T *const a = from + q, *const b = a + apart, *const c = b + apart, *const e = c + apart;
      const auto re0 = hn::Load(d, a), im0 = hn::Load(d, a + lanes), re1 = hn::Load(d, b),
                 im1 = hn::Load(d, b + lanes), re2 = hn::Load(d, c), im2 = hn::Load(d, c + lanes),
                 re3 = hn::Load(d, e), im3 = hn::Load(d, e + lanes);
      const auto even_re = hn::Add(re0, re2), even_im = hn::Add(im0, im2), odd_re = hn::Add(re1, re3),
                 odd_im = hn::Add(im1, im3);
      const auto difference_re = hn::Sub(re0, re2), difference_im = hn::Sub(im0, im2);
      const auto turned_re = hn::Sub(im1, im3), turned_im = hn::Sub(re3, re1);  // times -i
      T* const y = to + q;
      hn::Store(hn::Add(even_re, odd_re), d, y);
      hn::Store(hn::Add(even_im, odd_im), d, y + lanes);
      store_turned(hn::Add(difference_re, turned_re), hn::Add(difference_im, turned_im), cosine1, sine1,
                   y + between);
      store_turned(hn::Sub(even_re, odd_re), hn::Sub(even_im, odd_im), cosine2, sine2, y + 2 * between);
      store_turned(hn::Sub(difference_re, turned_re), hn::Sub(difference_im, turned_im), cosine3, sine3,
                   y + 3 * between);
    }
  }

  static HWY_INLINE void store_turned(hn::Vec<D> re, hn::Vec<D> im, hn::Vec<D> cosine, hn::Vec<D> sine,
                                      T* to) {
    const D d;
    hn::Store(hn::Sub(hn::Mul(re, cosine), hn::Mul(im, sine)), d, to);
    hn::Store(hn::Add(hn::Mul(re, sine), hn::Mul(im, cosine)), d, to + lanes);
  }

  /// The sums for k and for radix - k have the same parts.
  static void by_prime(const Waves<T>& waves, std::int64_t radix, std::int64_t angle, const T* from,
                       std::int64_t apart, T* to, std::int64_t stride) {
    const D d;
    for (std::int64_t k = 0; 2 * k <= radix; ++k)
      for (std::int64_t q = 0; q < stride; ++q) {
        std::int64_t at = 0;
        const std::int64_t further = waves.n / radix * k;
        auto re = hn::Zero(d), im = re, turned_re = re, turned_im = re;
        const T* a = from + q * step;
        for (std::int64_t j = 0; j < radix; ++j, a += apart) {
          const auto cosine = hn::Set(d, waves.cosine(at)), sine = hn::Set(d, waves.sine(at));
          const auto a_re = hn::Load(d, a), a_im = hn::Load(d, a + lanes);
          re = hn::MulAdd(a_re, cosine, re), im = hn::MulAdd(a_im, cosine, im);
          turned_re = hn::MulAdd(a_im, sine, turned_re), turned_im = hn::MulAdd(a_re, sine, turned_im);
          at += further;
          if (at >= waves.n) at -= waves.n;
        }
        const auto store = [&](hn::Vec<D> out_re, hn::Vec<D> out_im, std::int64_t of) HWY_ATTR {
          store_turned(out_re, out_im, hn::Set(d, waves.cosine(angle * of)),
                       hn::Set(d, waves.sine(angle * of)), to + (of * stride + q) * step);
        };
        store(hn::Sub(re, turned_re), hn::Add(im, turned_im), k);
        if (k > 0 && 2 * k < radix) store(hn::Add(re, turned_re), hn::Sub(im, turned_im), radix - k);
      }
  }

  const std::int64_t positions_, width_;
  const T* const from_;
  T* const to_;
  const Waves<T> of_features_;
  std::vector<std::int64_t> lengths_;
  std::map<std::int64_t, Waves<T>> of_positions_;
  Tensor half_;  // X F_d, its first half: [B, block, N, re and im, lanes]
};

void fourier_tensor(const Tensor& x, const Tensor& lengths, const Tensor& out) {
  with_floating_type(x.dtype(), [&]<class T>(T) { Fourier<T>(x, lengths, out).run(); });
}

}  // namespace
}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(fourier_tensor);

void fourier(const Tensor& x, const Tensor& lengths, const Tensor& out) {
  if (x.count() == 0) return;
  const double steps = std::log2(static_cast<double>(x.size(1)) * static_cast<double>(x.size(2)));
  const ProfileScope profile("fourier", 2.5 * static_cast<double>(x.count()) * steps, 0);
  HWY_DYNAMIC_DISPATCH(fourier_tensor)(x, lengths, out);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
