// Bulk Philox 4x32-10 (Salmon et al., SC 2011), and dropout with it, for one SIMD target; included once for
// each.
#if defined(HEED_BACKENDS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_BACKENDS_CPU_PHILOX_INL_H_
#undef HEED_BACKENDS_CPU_PHILOX_INL_H_
#else
#define HEED_BACKENDS_CPU_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "heed/backends/cpu/math-inl.h"
#include "heed/core/random.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The stream of one key, read a pair of vectors at a time.
///
/// Each counter word of a block has a 64-bit lane of its own, so that a 32 x 32 -> 64 bit product
/// needs no shuffles; the upper halves hold leftovers that no later product reads. Neighbouring
/// lanes work on blocks half a vector apart, so that interleaving the results puts every word in
/// its place.
class PhiloxStream {
 public:
  using D64 = hn::ScalableTag<std::uint64_t>;
  using D32 = hn::ScalableTag<std::uint32_t>;
  using Words = hn::Vec<D32>;

  explicit PhiloxStream(const RandomKey& key) : op_(key.op), step_(key.step) {
    auto k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      key0_[round] = k0;
      key1_[round] = k1;
      k0 += 0x9E3779B9u;  // golden ratio
      k1 += 0xBB67AE85u;  // sqrt(3) - 1
    }
    const std::size_t lanes = hn::Lanes(D64());
    for (std::size_t i = 0; i < lanes; ++i) offsets_[i] = i / 2 + (i % 2) * (lanes / 2);
  }

  /// Words in a pair of vectors.
  static std::int64_t step() { return 2 * static_cast<std::int64_t>(hn::Lanes(D32())); }

  /// Computes the words 4 block, ..., 4 block + step() - 1.
  HWY_INLINE void words(std::uint64_t block, Words& first, Words& second) const {
    const D64 d;
    const D32 d32;
    const auto multiplier0 = hn::Set(d32, 0xD2511F53u), multiplier1 = hn::Set(d32, 0xCD9E8D57u);
    auto c0 = hn::Add(hn::Set(d, block), hn::Load(d, offsets_));
    auto c1 = hn::ShiftRight<32>(c0);
    auto c2 = hn::Set(d, op_), c3 = hn::Set(d, step_);
    for (int round = 0; round < 10; ++round) {
      const auto product0 = hn::MulEven(multiplier0, hn::BitCast(d32, c0));
      const auto product1 = hn::MulEven(multiplier1, hn::BitCast(d32, c2));
      c0 = hn::Xor3(hn::ShiftRight<32>(product1), c1, hn::Set(d, key0_[round]));
      c2 = hn::Xor3(hn::ShiftRight<32>(product0), c3, hn::Set(d, key1_[round]));
      c1 = product1;
      c3 = product0;
    }
    const auto low = hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(c1)), hn::BitCast(d32, c0));
    const auto high = hn::OddEven(hn::BitCast(d32, hn::ShiftLeft<32>(c3)), hn::BitCast(d32, c2));
    first = hn::BitCast(d32, hn::InterleaveLower(d, hn::BitCast(d, low), hn::BitCast(d, high)));
    second = hn::BitCast(d32, hn::InterleaveUpper(d, hn::BitCast(d, low), hn::BitCast(d, high)));
  }

  /// Writes words start, ..., start + count - 1, for any start.
  HWY_INLINE void fill(std::uint64_t start, std::int64_t count, std::uint32_t* HWY_RESTRICT out) const {
    const D32 d32;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d32));
    if (const auto skipped = static_cast<std::int64_t>(start % 4); skipped != 0) {
      const std::int64_t taken = std::min(count, 4 - skipped);
      partial(start / 4, skipped, taken, out);
      start += taken, out += taken, count -= taken;
    }
    std::uint64_t block = start / 4;
    for (; count >= 2 * lanes; count -= 2 * lanes, out += 2 * lanes, block += lanes / 2) {
      Words first, second;
      words(block, first, second);
      hn::StoreU(first, d32, out);
      hn::StoreU(second, d32, out + lanes);
    }
    if (count > 0) partial(block, 0, count, out);
  }

 private:
  /// Writes `count` words from word `skipped` of `block` on; fewer than a pair of vectors holds.
  HWY_NOINLINE void partial(std::uint64_t block, std::int64_t skipped, std::int64_t count,
                            std::uint32_t* HWY_RESTRICT out) const {
    const D32 d32;
    HWY_ALIGN std::uint32_t buffer[2 * hn::MaxLanes(D32())];
    Words first, second;
    words(block, first, second);
    hn::Store(first, d32, buffer);
    hn::Store(second, d32, buffer + hn::Lanes(d32));
    std::memcpy(out, buffer + skipped, static_cast<std::size_t>(count) * sizeof(std::uint32_t));
  }

  HWY_ALIGN std::uint64_t offsets_[hn::MaxLanes(D64())];
  std::uint64_t key0_[10], key1_[10];
  std::uint64_t op_, step_;
};

// --- dropout of a range of elements

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

/// Computes out[i] = residual[i] + x[i] keep / (1 - p) for i in [begin, end), begin a multiple of
/// four; residual may be null (0).
HWY_INLINE void dropout_range(const PhiloxStream& stream, double p, std::int64_t begin, std::int64_t end,
                              const float* x, const float* residual, float* out) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<std::int32_t> di;
  const auto limit = hn::Set(di, static_cast<std::int32_t>(DropoutRule(p).first_kept >> 8) - 1);
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
      const double kept = words[k] >= rule.first_kept ? x[i + k] * scale : 0;
      out[i + k] = residual ? residual[i + k] + kept : kept;
    }
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
