#pragma once

#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// The rounds of locality-sensitive hashing of Reformer (arXiv 2001.04451, section 2): in each, G sequences
/// of N words are sorted by bucket and cut into chunks, and a word sees the words of its bucket that stand in
/// its chunk or in the one before (W_r in reformer.cpp).
class HashRounds {
 public:
  HashRounds(std::int64_t buckets, std::int64_t chunk, bool causal)
      : buckets_(buckets), chunk_(chunk), causal_(causal) {}

  /// One more round: sides [G, N, buckets / 2] are words times its rotation; real i32 [G, N] or undefined.
  void add(const Tensor& sides, const Tensor& real);
  /// i32 [G, chunks, m, 2 m] of the last round, from sorted queries to their chunk before and their own: 1
  /// for pairs in W, but for a word with itself and for pairs that an earlier round had already.
  Tensor allowed() const;

  const Tensor& order() const { return rounds_.back().order; }  ///< i32 [G, N] of the last round
  Tensor all_orders() const;                                    ///< [R, G, N]
  Tensor all_buckets() const;                                   ///< [R, G, N], `buckets` at padding

 private:
  struct Round {
    Tensor bucket, order;
    /// bucket (chunks + 1) + chunk: a query may see a key where the difference of their places is 0 or 1.
    Tensor place;
  };

  std::int64_t buckets_, chunk_;
  bool causal_;
  std::vector<Round> rounds_;
};

}  // namespace heed
