#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/random.h"

namespace heed {

/// Metrics of answer ranking (Yang, Yih and Meek 2015, "WikiQA"): means over the questions that
/// have a right answer. The answers to a question form a group.
struct AnswerRanking {
  /// Mean average precision: for a group, the mean over its right answers of (right answers among
  /// the first r) / r, where r is the rank of the right answer.
  double map = 0;
  double mrr = 0;           ///< the mean of 1 / rank of the first right answer
  std::int64_t groups = 0;  ///< groups with a right answer; 0: map and mrr are undefined
  /// Of these, groups with only right answers, which always score 1.
  std::int64_t only_right = 0;
  std::int64_t without_right = 0;  ///< groups without a right answer, which are ignored
};

/// Ranks the answers of each group by decreasing score. Ties count against the right answer, so
/// that equal scores gain nothing. groups[i] is the group of answer i; the answers of a group are
/// adjacent. Throws Error if the lists differ in length, and for a NaN score.
AnswerRanking rank_answers(std::span<const std::size_t> groups, std::span<const float> scores,
                           const std::vector<bool>& right);

/// The expected rank of one score among all, averaged over all orders of ties; NaN ranks last.
struct ExpectedRank {
  double reciprocal = 0;  ///< mean of 1 / rank
  double first = 0;       ///< probability of rank 1
};
/// Returns the expected rank of scores[own]. Throws Error if `own` is out of range.
ExpectedRank expected_rank(std::span<const float> scores, std::size_t own);

/// Metrics of click ranking, for one list or as a mean over lists, as in MIND's own evaluation (Wu
/// et al., ACL 2020, section 5.1). Ranks count from 1; ties are averaged over all their orders.
struct ClickRanking {
  double auc = 0;  ///< share of pairs (clicked, passed) whose clicked one has the larger score
  double mrr = 0;  ///< sum of 1 / rank over the clicked ones, divided by their number
  /// Sum over the first 5 (10) of (2^click - 1) / log2(1 + rank), divided by the largest possible.
  double ndcg5 = 0, ndcg10 = 0;
};

/// Returns the metrics of one list. Throws Error if one side is empty or a score is NaN.
ClickRanking click_ranking(std::span<const float> clicked, std::span<const float> passed);

/// Returns the loss of one list: the mean over clicked items of -log(e^s / (e^s + sum_j e^s_j)),
/// where s is the score of the clicked item and s_j are the scores of the passed items.
double click_loss(std::span<const float> clicked, std::span<const float> passed);

/// The mean of click metrics over lists. Lists without a clicked or without a passed item are
/// counted and left out.
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

/// Draws `count` of the passed items as negatives for a click, without repeats until all have been
/// used. A pure function of its arguments. `passed` must not be empty.
std::vector<std::int32_t> draw_negatives(std::span<const std::int32_t> passed, std::int64_t count,
                                         const RandomKey& key, std::uint64_t example);

}  // namespace heed
