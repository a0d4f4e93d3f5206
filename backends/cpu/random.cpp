#include <cmath>

#include "heed/backends/cpu/operands.h"
#include "heed/core/profile.h"
#include "heed/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/random.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/contrib/math/math-inl.h>

#include "heed/backends/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

void fill_words(const RandomKey& key, std::uint64_t start, std::int64_t count, std::uint32_t* out) {
  PhiloxStream(key).fill(start, count, out);
}

// Elements worth a task of their own; a multiple of every step below.
constexpr std::int64_t task_size = 16384;
constexpr std::int64_t batch_size = 1024;  // words drawn at once when they go through memory

/// Converts words of the stream to numbers in [0, 1): the upper 24 bits times 2^-24.
template <class D>
HWY_INLINE hn::Vec<D> unit_intervals(D d, PhiloxStream::Words words) {
  const hn::Repartition<std::int32_t, D> di;
  return hn::Mul(hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(words))), hn::Set(d, 0x1p-24f));
}

void uniform_range(const PhiloxStream& stream, double low, double high, std::int64_t begin, std::int64_t end,
                   float* out) {
  const hn::ScalableTag<float> d;
  const auto base = hn::Set(d, static_cast<float>(low)), width = hn::Set(d, static_cast<float>(high - low));
  const auto last = hn::Set(d, static_cast<float>(last_below(low, high, DType::f32)));
  for_each_words(stream, begin, end, [&](auto part, auto words, std::int64_t i) HWY_ATTR {
    part.store(hn::Min(hn::MulAdd(unit_intervals(d, words), width, base), last), d, out + i);
  });
}

void uniform_range(const PhiloxStream& stream, double low, double high, std::int64_t begin, std::int64_t end,
                   double* out) {
  std::uint32_t words[batch_size];
  const double last = last_below(low, high, DType::f64);
  for (std::int64_t i = begin; i < end; i += batch_size) {
    const std::int64_t count = std::min(batch_size, end - i);
    stream.fill(static_cast<std::uint64_t>(i), count, words);
    for (std::int64_t k = 0; k < count; ++k)
      out[i + k] = std::min(low + (high - low) * unit_interval(words[k]), last);
  }
}

/// Box and Muller (1958): the pair (u, v) gives r cos(2 pi v) and r sin(2 pi v) with r = sqrt(-2 log(1 - u)).
/// Computes `count` values, an even number, from as many words.
void box_muller(const std::uint32_t* words, std::int64_t count, float* out) {
  const hn::ScalableTag<float> d;
  const PhiloxStream::D32 d32;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f), two_pi = hn::Set(d, 6.28318530717958648f);
  for (std::int64_t i = 0; i < count; i += 2 * lanes) {
    PhiloxStream::Words first, second;
    hn::LoadInterleaved2(d32, words + i, first, second);
    const auto log_u = hn::Log(d, hn::Sub(one, unit_intervals(d, first)));
    const auto radius = hn::Sqrt(hn::Max(hn::Mul(hn::Set(d, -2.0f), log_u), hn::Zero(d)));
    const auto angle = hn::Mul(unit_intervals(d, second), two_pi);
    hn::StoreInterleaved2(hn::Mul(radius, hn::Cos(d, angle)), hn::Mul(radius, hn::Sin(d, angle)), d, out + i);
  }
}

void box_muller(const std::uint32_t* words, std::int64_t count, double* out) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - unit_interval(words[i])));
    const double angle = 6.28318530717958648 * unit_interval(words[i + 1]);
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
}

template <class T>
void normal_range(const PhiloxStream& stream, double mean, double deviation, std::int64_t begin,
                  std::int64_t end, T* out) {
  std::uint32_t words[batch_size];
  T values[batch_size];
  for (std::int64_t i = begin; i < end; i += batch_size) {
    const std::int64_t count = std::min(batch_size, end - i);
    stream.fill(static_cast<std::uint64_t>(i), batch_size, words);
    box_muller(words, batch_size, values);
    for (std::int64_t k = 0; k < count; ++k)
      out[i + k] = static_cast<T>(mean) + static_cast<T>(deviation) * values[k];
  }
}

void uniform_tensor(const RandomKey& key, double low, double high, const Tensor& out) {
  const PhiloxStream stream(key);
  with_floating_type(out.dtype(), [&]<class T>(T) {
    parallel_ranges(out.count(), task_size, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      uniform_range(stream, low, high, begin, end, out.data<T>());
    });
  });
}

void normal_tensor(const RandomKey& key, double mean, double deviation, const Tensor& out) {
  const PhiloxStream stream(key);
  with_floating_type(out.dtype(), [&]<class T>(T) {
    parallel_ranges(out.count(), task_size, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      normal_range(stream, mean, deviation, begin, end, out.data<T>());
    });
  });
}

void dropout_tensor(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                    const Tensor& out) {
  const PhiloxStream stream(key);
  with_floating_type(out.dtype(), [&]<class T>(T) {
    const T* added = residual.defined() ? residual.data<T>() : nullptr;
    parallel_ranges(out.count(), task_size, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      dropout_range(stream, p, begin, end, x.data<T>(), added, out.data<T>());
    });
  });
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

constinit const std::int64_t kernel_targets = HWY_TARGETS;

HWY_EXPORT(fill_words);
HWY_EXPORT(uniform_tensor);
HWY_EXPORT(normal_tensor);
HWY_EXPORT(dropout_tensor);

void philox_fill(const RandomKey& key, std::uint64_t start, std::int64_t count, std::uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(fill_words)(key, start, count, out);
}

void uniform(const RandomKey& key, double low, double high, const Tensor& out) {
  const ProfileScope profile("uniform", 0, bytes_of(out));
  HWY_DYNAMIC_DISPATCH(uniform_tensor)(key, low, high, out);
}

void normal(const RandomKey& key, double mean, double deviation, const Tensor& out) {
  const ProfileScope profile("normal", 0, bytes_of(out));
  HWY_DYNAMIC_DISPATCH(normal_tensor)(key, mean, deviation, out);
}

void dropout(const Tensor& x, const Tensor& residual, double p, const RandomKey& key, const Tensor& out) {
  const ProfileScope profile("dropout", 0, (residual.defined() ? 3 : 2) * bytes_of(out));
  HWY_DYNAMIC_DISPATCH(dropout_tensor)(x, residual, p, key, out);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
