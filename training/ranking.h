#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/random.h"

namespace heed {

/// How well right answers are ranked before wrong ones (Yang, Yih and Meek 2015, "WikiQA"): means over the
/// questions that have a right answer. The answers to a question form a group.
struct AnswerRanking {
  /// Mean average precision: for a group, the mean over its right answers of (right answers among the first
  /// r) / r, where r is the rank of the right answer.
  double map = 0;
  double mrr = 0;                  ///< the mean of 1 / rank of the first right answer
  std::int64_t groups = 0;         ///< groups with a right answer, which count; 0: map and mrr are undefined
  std::int64_t only_right = 0;     ///< of these, without a wrong answer: 1 in both means, whatever the scores
  std::int64_t without_right = 0;  ///< groups without a right answer, which do not count
};

/// Ranks the answers of each group by decreasing score; of equal scores the wrong answer comes first, so that
/// a model that scores all answers alike gains nothing. groups[i] is the group of answer i; the answers of a
/// group are adjacent. Throws Error if the lists differ in length, and for a score that is NaN.
AnswerRanking rank_answers(std::span<const std::size_t> groups, std::span<const float> scores,
                           const std::vector<bool>& right);

/// Where one score stands among all, as a mean over all orders of equal ones; NaN stands last.
struct ExpectedRank {
  double reciprocal = 0;  ///< of 1 / rank
  double first = 0;       ///< how likely it is the first
};
/// Throws Error unless `own` is an index.
ExpectedRank expected_rank(std::span<const float> scores, std::size_t own);

/// How well scores rank what was clicked before what was passed over, in one list or as a mean over lists, as
/// in MIND's own evaluation (Wu et al., ACL 2020, section 5.1). Ranks count from 1; candidates with equal
/// scores get the mean over all their orders.
struct ClickRanking {
  double auc = 0;  ///< share of pairs (clicked, passed) whose clicked one has the larger score
  double mrr = 0;  ///< sum of 1 / rank over the clicked ones, divided by their number
  /// Sum over the first 5 (10) of (2^click - 1) / log2(1 + rank), divided by the largest possible.
  double ndcg5 = 0, ndcg10 = 0;
};

/// For one list. Throws Error if one side is empty or a score is NaN.
ClickRanking click_ranking(std::span<const float> clicked, std::span<const float> passed);

/// The loss of one list: the mean over the clicked ones of -log(e^s / (e^s + sum_j e^s_j)), where s is the
/// score of the clicked one and s_j are those of the passed ones.
double click_loss(std::span<const float> clicked, std::span<const float> passed);

/// The mean over lists. Lists without a click or without anything passed say nothing about the order; they
/// are counted and left out.
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

/// Draws `count` of the passed ones as negatives for a click: without repeats, and again from all of them if
/// there are fewer. A pure function of its arguments. `passed` must not be empty.
std::vector<std::int32_t> draw_negatives(std::span<const std::int32_t> passed, std::int64_t count,
                                         const RandomKey& key, std::uint64_t example);

}  // namespace heed
