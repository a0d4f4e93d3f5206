#include "heed/training/answer_ranking.h"

#include <algorithm>
#include <cmath>

#include "heed/core/error.h"

namespace heed {
namespace {

struct Answer {
  float score;
  bool right;
};

void add_group(std::vector<Answer> answers, AnswerRanking& ranking) {
  const auto right =
      std::count_if(answers.begin(), answers.end(), [](const Answer& one) { return one.right; });
  if (right == 0) {
    ++ranking.without_right;
    return;
  }
  ++ranking.groups;
  if (static_cast<std::size_t>(right) == answers.size()) ++ranking.only_right;
  std::stable_sort(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) {
    return a.score != b.score ? a.score > b.score : a.right < b.right;
  });
  double found = 0, precisions = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].right) continue;
    const auto rank = static_cast<double>(i + 1);
    if (found == 0) ranking.mrr += 1 / rank;
    precisions += ++found / rank;
  }
  ranking.map += precisions / found;
}

}  // namespace

AnswerRanking rank_answers(std::span<const std::size_t> groups, std::span<const float> scores,
                           const std::vector<bool>& right) {
  check(groups.size() == scores.size() && right.size() == scores.size(), "rank_answers: ", groups.size(),
        " groups, ", scores.size(), " scores and ", right.size(), " answers must be as many");
  AnswerRanking ranking;
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    check(!std::isnan(scores[i]), "rank_answers: the score of answer ", i, " is no number");
    answers.push_back({scores[i], right[i]});
    if (i + 1 < scores.size() && groups[i + 1] == groups[i]) continue;
    add_group(std::move(answers), ranking);
    answers = {};
  }
  if (ranking.groups > 0) {
    ranking.map /= static_cast<double>(ranking.groups);
    ranking.mrr /= static_cast<double>(ranking.groups);
  }
  return ranking;
}

}  // namespace heed
