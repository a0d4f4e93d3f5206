#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstdint>

namespace heed {

/// Names one stream of random numbers. Element i of a stream depends on (seed, step, op, i) alone,
/// never on the order of calls, the number of threads or the device.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t op = 0;
};

/// Four random words: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
/// SC 2011). The key is the seed; the counter is {block low word, block high word, op, step}.
/// Element i of a stream is word i % 4 of block i / 4.
inline std::array<std::uint32_t, 4> philox(const RandomKey& key, std::uint64_t block) {
  std::array<std::uint32_t, 4> counter = {static_cast<std::uint32_t>(block),
                                          static_cast<std::uint32_t>(block >> 32), key.op, key.step};
  auto key_low = static_cast<std::uint32_t>(key.seed);
  auto key_high = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key_low,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key_high,
               static_cast<std::uint32_t>(product0)};
    key_low += 0x9E3779B9;  // the Weyl constants of the paper
    key_high += 0xBB67AE85;
  }
  return counter;
}

/// Hands out the keys of one training step, one per random op: the op number counts the calls. A
/// copy continues from the same place, which is how recomputed segments draw the same numbers
/// again.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint32_t step = 0) : key_{seed, step, 0} {}
  RandomKey next() {
    RandomKey key = key_;
    ++key_.op;
    return key;
  }

 private:
  RandomKey key_;
};

/// A random word for host-side decisions such as shuffling: element `index` of the stream.
inline std::uint32_t random_word(const RandomKey& key, std::uint64_t index) {
  return philox(key, index / 4)[index % 4];
}
/// Returns a number uniform in [0, 1): the upper 24 bits of a word times 2^-24, exact in float and
/// double alike.
inline double unit_interval(std::uint32_t word) {
  return static_cast<double>(word >> 8) * 0x1p-24;
}
/// Dropout keeps element i iff unit_interval(word i) >= p. With integers: iff word >= first_kept,
/// or, of the upper 24 bits, word >> 8 >= first_kept >> 8.
struct DropoutRule {
  explicit DropoutRule(double p) : first_kept(static_cast<std::uint64_t>(std::ceil(p * 0x1p24)) << 8) {}

  /// The smallest word that is kept: 0 if all are, 2^32 if none is (p is within 2^-24 of 1).
  std::uint64_t first_kept;
};
/// Returns an integer uniform in [0, bound), for a bound of at most 2^32: bound times the word read
/// as a 32-bit fraction. The bias is bound / 2^32.
inline std::uint64_t below(std::uint32_t word, std::uint64_t bound) {
  return (std::uint64_t{word} * bound) >> 32;
}

/// Reads the words of a stream one after the other, for random choices on the host.
class Draws {
 public:
  explicit Draws(const RandomKey& key) : key_(key) {}

  double unit() { return unit_interval(random_word(key_, drawn_++)); }
  /// Uniform in [0, bound).
  template <std::integral T>
  T below(T bound) {
    return static_cast<T>(heed::below(random_word(key_, drawn_++), static_cast<std::uint64_t>(bound)));
  }
  /// Any element of an indexable list.
  template <class List>
  const auto& pick(const List& list) {
    return list[below(list.size())];
  }

 private:
  RandomKey key_;
  std::uint64_t drawn_ = 0;
};

}  // namespace heed
