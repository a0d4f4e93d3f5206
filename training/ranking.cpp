#include "heed/training/ranking.h"

#include <algorithm>
#include <cmath>

#include "heed/base/error.h"

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
    check(!std::isnan(scores[i]), "rank_answers: the score of answer ", i, " is NaN");
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

ExpectedRank expected_rank(std::span<const float> scores, std::size_t own) {
  check(own < scores.size(), "expected_rank: there is no score ", own, " of ", scores.size());
  const auto is_before = [](float a, float b) { return std::isnan(b) ? !std::isnan(a) : a > b; };
  std::int64_t before = 0, tied = 0;
  for (const float other : scores) {
    before += is_before(other, scores[own]) ? 1 : 0;
    tied += !is_before(other, scores[own]) && !is_before(scores[own], other) ? 1 : 0;
  }
  ExpectedRank expected;
  for (std::int64_t rank = before + 1; rank <= before + tied; ++rank)
    expected.reciprocal += 1 / static_cast<double>(rank * tied);
  expected.first = before == 0 ? 1 / static_cast<double>(tied) : 0;
  return expected;
}

static double discount(std::int64_t rank, std::int64_t limit) {
  return rank > limit ? 0 : 1 / std::log2(1 + static_cast<double>(rank));
}

ClickRanking click_ranking(std::span<const float> clicked, std::span<const float> passed) {
  check(!clicked.empty() && !passed.empty(), "a ranking of ", clicked.size(), " clicked and ", passed.size(),
        " passed candidates cannot be measured: there must be both");
  std::vector<std::pair<float, bool>> list;
  for (const float score : clicked) list.emplace_back(score, true);
  for (const float score : passed) list.emplace_back(score, false);
  for (const auto& [score, click] : list) check(!std::isnan(score), "a candidate's score is NaN");
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first > b.first; });

  ClickRanking found;
  double best5 = 0, best10 = 0, passed_before = 0;
  const auto clicks = static_cast<double>(clicked.size()), passes = static_cast<double>(passed.size());
  for (std::size_t begin = 0, end = 0; begin < list.size(); begin = end) {
    double tied_clicks = 0, reciprocal = 0, discount5 = 0, discount10 = 0;
    for (; end < list.size() && list[end].first == list[begin].first; ++end) {
      const auto rank = static_cast<std::int64_t>(end) + 1;
      tied_clicks += list[end].second ? 1 : 0;
      reciprocal += 1 / static_cast<double>(rank);
      discount5 += discount(rank, 5);
      discount10 += discount(rank, 10);
      if (end < clicked.size()) best5 += discount(rank, 5), best10 += discount(rank, 10);
    }
    const auto tied = static_cast<double>(end - begin);
    const double tied_passes = tied - tied_clicks;
    found.auc += tied_clicks * (passes - passed_before - tied_passes / 2) / (clicks * passes);
    found.mrr += tied_clicks / tied * reciprocal / clicks;
    found.ndcg5 += tied_clicks / tied * discount5;
    found.ndcg10 += tied_clicks / tied * discount10;
    passed_before += tied_passes;
  }
  found.ndcg5 /= best5;
  found.ndcg10 /= best10;
  return found;
}

double click_loss(std::span<const float> clicked, std::span<const float> passed) {
  double sum = 0;
  for (const float click : clicked) {
    double others = 0;
    for (const float other : passed) others += std::exp(static_cast<double>(other - click));
    sum += std::log1p(others);
  }
  return sum / static_cast<double>(clicked.size());
}

void ClickRankingMeter::add(std::span<const float> clicked, std::span<const float> passed) {
  if (clicked.empty() || passed.empty()) {
    ++left_out_;
    return;
  }
  const ClickRanking one = click_ranking(clicked, passed);
  sum_ = {sum_.auc + one.auc, sum_.mrr + one.mrr, sum_.ndcg5 + one.ndcg5, sum_.ndcg10 + one.ndcg10};
  ++lists_;
}

ClickRanking ClickRankingMeter::mean() const {
  check(lists_ > 0, "there is no list with both a clicked and a passed item: nothing can be measured (",
        left_out_, " were left out)");
  const auto count = static_cast<double>(lists_);
  return {sum_.auc / count, sum_.mrr / count, sum_.ndcg5 / count, sum_.ndcg10 / count};
}

std::vector<std::int32_t> draw_negatives(std::span<const std::int32_t> passed, std::int64_t count,
                                         const RandomKey& key, std::uint64_t example) {
  std::vector<std::int32_t> left(passed.begin(), passed.end());
  check(!left.empty(), "there is nothing to draw negatives from");
  const std::uint64_t wanted = static_cast<std::uint64_t>(count), all = left.size();
  std::vector<std::int32_t> drawn;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint64_t done = i % all;  // the first ones of `left` are drawn: Fisher-Yates
    const std::uint64_t other = done + below(random_word(key, example * wanted + i), all - done);
    std::swap(left[done], left[other]);
    drawn.push_back(left[done]);
  }
  return drawn;
}

}  // namespace heed
