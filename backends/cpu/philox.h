#pragma once

#include <cmath>
#include <cstdint>

#include "heed/core/random.h"

namespace heed::cpu {

/// Writes the words start, start + 1, ..., start + count - 1 of the stream `key` to `out`. Runs on the
/// calling thread; `start` need not be a multiple of the block length.
void philox_fill(const RandomKey& key, std::uint64_t start, std::int64_t count, std::uint32_t* out);

/// Dropout keeps element i iff unit_interval(word i) >= p. With integers: iff word >= first_kept, or, of the
/// upper 24 bits that unit_interval() reads, word >> 8 >= first_kept >> 8 = ceil(2^24 p).
struct DropoutRule {
  explicit DropoutRule(double p) : first_kept(static_cast<std::uint64_t>(std::ceil(p * 0x1p24)) << 8) {}

  /// The smallest word that is kept: 0 if all are, 2^32 if none is (p is within 2^-24 of 1).
  std::uint64_t first_kept;
};

}  // namespace heed::cpu
