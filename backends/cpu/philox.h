#pragma once

#include <cstdint>

#include "heed/core/random.h"

namespace heed::cpu {

/// Writes the words start, start + 1, ..., start + count - 1 of the stream `key` to `out`. Runs on the
/// calling thread; `start` need not be a multiple of the block length.
void philox_fill(const RandomKey& key, std::uint64_t start, std::int64_t count, std::uint32_t* out);

/// Dropout keeps element i iff unit_interval(word i) >= p. With integers: iff word >= first_kept().
class DropoutRule {
 public:
  explicit DropoutRule(double p);
  /// True if no element is dropped.
  bool keeps_all() const { return first_kept_ == 0; }
  /// True if every element is dropped: p is within 2^-24 of 1.
  bool drops_all() const { return first_kept_ >> 32 != 0; }
  /// The smallest word that is kept; meaningless if drops_all().
  std::uint32_t first_kept() const { return static_cast<std::uint32_t>(first_kept_); }
  bool keeps(std::uint32_t word) const { return word >= first_kept_; }

 private:
  std::uint64_t first_kept_;
};

}  // namespace heed::cpu
