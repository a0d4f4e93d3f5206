#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heed {

/// How well right answers are ranked before wrong ones, as answer selection is measured (Yang, Yih and Meek 2015,
/// "WikiQA"): means over the groups of answers, one group for each question, that have a right answer.
struct AnswerRanking {
  /// Mean average precision: of a group the mean, over its right answers, of (right answers among the first r) / r,
  /// r being the rank of the right answer.
  double map = 0;
  double mrr = 0;                  ///< the mean of 1 / rank of the first right answer
  std::int64_t groups = 0;         ///< that have a right answer and count; 0: map and mrr say nothing
  std::int64_t only_right = 0;     ///< of these, without a wrong answer: 1 in both means, whatever the scores
  std::int64_t without_right = 0;  ///< that do not count
};

/// Ranks the answers of each group by falling score; of equal scores the wrong answer stands first, so that a model that
/// scores all alike gains nothing. groups[i] is the group of answer i; the answers of one group stand together.
/// Throws Error when the lists differ in length, and for a score that is no number.
AnswerRanking rank_answers(std::span<const std::size_t> groups, std::span<const float> scores,
                           const std::vector<bool>& right);

}  // namespace heed
