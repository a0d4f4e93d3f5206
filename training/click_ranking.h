#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/random.h"

namespace heed {

/// How well scores put what was clicked before what was passed, of one list or as a mean over lists; as MIND's own
/// evaluation has it (Wu et al., ACL 2020, section 5.1). Ranks count from 1; candidates of the same score get the mean
/// over all their orders.
struct ClickRanking {
  double auc = 0;  ///< share of pairs (clicked, passed) in which the clicked one has the larger score
  double mrr = 0;  ///< sum of 1 / rank over the clicked ones, divided by their number
  /// Sum over the first 5 (10) of (2^click - 1) / log2(1 + rank), divided by the largest possible.
  double ndcg5 = 0, ndcg10 = 0;
};

/// Of one list. Throws Error when one side is empty or a score is no number.
ClickRanking click_ranking(std::span<const float> clicked, std::span<const float> passed);

/// The mean over lists. Those without a click or without anything passed say nothing about an order: they are counted
/// and left out.
class ClickRankingMeter {
 public:
  void add(std::span<const float> clicked, std::span<const float> passed);
  ClickRanking mean() const;
  std::int64_t lists() const { return lists_; }
  std::int64_t left_out() const { return left_out_; }

 private:
  ClickRanking sum_;
  std::int64_t lists_ = 0, left_out_ = 0;
};

/// `count` of the passed ones to learn from beside a click: drawn without repeats, and again from all of them when
/// there are fewer. A pure function of its arguments. `passed` must not be empty.
std::vector<std::int32_t> draw_negatives(std::span<const std::int32_t> passed, std::int64_t count,
                                         const RandomKey& key, std::uint64_t example);

}  // namespace heed
