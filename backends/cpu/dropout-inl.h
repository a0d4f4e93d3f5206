// Dropout of a range of elements for one SIMD target; included once per target.
#if defined(HEED_BACKENDS_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_BACKENDS_CPU_DROPOUT_INL_H_
#undef HEED_BACKENDS_CPU_DROPOUT_INL_H_
#else
#define HEED_BACKENDS_CPU_DROPOUT_INL_H_
#endif

#include <cmath>

#include "heed/backends/cpu/math-inl.h"
#include "heed/backends/cpu/philox-inl.h"
#include "heed/backends/cpu/philox.h"
#include "heed/core/random.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Calls body(part, words, i) for vectors of random words that cover [begin, end);
/// begin is a multiple of four.
template <class Body>
HWY_INLINE void for_each_words(const PhiloxStream& stream, std::int64_t begin, std::int64_t end, Body body) {
  const std::int64_t lanes = PhiloxStream::step() / 2;
  std::int64_t i = begin;
  PhiloxStream::Words first, second;
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    stream.words(static_cast<std::uint64_t>(i) / 4, first, second);
    body(Whole(), first, i);
    body(Whole(), second, i + lanes);
  }
  if (i == end) return;
  stream.words(static_cast<std::uint64_t>(i) / 4, first, second);
  if (end - i < lanes) return body(Rest{end - i}, first, i);
  body(Whole(), first, i);
  if (end - i > lanes) body(Rest{end - i - lanes}, second, i + lanes);
}

/// out[i] = residual[i] + x[i] keep / (1 - p) for i in [begin, end), begin a multiple of four; residual may
/// be null (0).
HWY_INLINE void dropout_range(const PhiloxStream& stream, double p, std::int64_t begin, std::int64_t end,
                              const float* x, const float* residual, float* out) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::int32_t> di;
  // Kept iff (word >> 8) >= ceil(2^24 p): DropoutRule in 24 bits, which cannot overflow for p near 1.
  const auto limit = hn::Set(di, static_cast<std::int32_t>(std::ceil(p * 0x1p24)) - 1);
  const auto scale = hn::Set(d, static_cast<float>(1 / (1 - p)));
  for_each_words(stream, begin, end, [&](auto part, auto words, std::int64_t i) HWY_ATTR {
    const auto keep = hn::RebindMask(d, hn::Gt(hn::BitCast(di, hn::ShiftRight<8>(words)), limit));
    const auto kept = hn::IfThenElseZero(keep, part.load(d, x + i));
    const auto value = residual ? hn::MulAdd(kept, scale, part.load(d, residual + i)) : hn::Mul(kept, scale);
    part.store(value, d, out + i);
  });
}

HWY_INLINE void dropout_range(const PhiloxStream& stream, double p, std::int64_t begin, std::int64_t end,
                              const double* x, const double* residual, double* out) {
  const DropoutRule rule(p);
  const double scale = 1 / (1 - p);
  constexpr std::int64_t batch_size = 1024;  // words drawn at once
  std::uint32_t words[batch_size];
  for (std::int64_t i = begin; i < end; i += batch_size) {
    const std::int64_t count = std::min(batch_size, end - i);
    stream.fill(static_cast<std::uint64_t>(i), count, words);
    for (std::int64_t k = 0; k < count; ++k) {
      const double kept = rule.keeps(words[k]) ? x[i + k] * scale : 0;
      out[i + k] = residual ? residual[i + k] + kept : kept;
    }
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
