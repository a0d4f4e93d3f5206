// MAP and MRR, against cases worked out by hand.

#include "heed/training/ranking.h"

#include <doctest/doctest.h>

#include <limits>

#include "heed/base/error.h"

using namespace heed;

TEST_CASE("Answers are ranked by score within their group") {
  // Ranks of the right answers: group 0: 1 and 3 of 4; group 1: 2 of 2; group 2: none; group 3: only right
  // ones.
  const std::vector<std::size_t> groups = {0, 0, 0, 0, 1, 1, 2, 2, 3, 3};
  const std::vector<float> scores = {0.9F, 0.5F, 0.1F, 0.7F, -1, -2, 5, 6, 0.3F, 0.2F};
  const std::vector<bool> right = {true, true, false, false, false, true, false, false, true, true};
  const AnswerRanking ranking = rank_answers(groups, scores, right);
  CHECK(ranking.map == doctest::Approx(((1.0 + 2.0 / 3) / 2 + 0.5 + 1.0) / 3));
  CHECK(ranking.mrr == doctest::Approx((1.0 + 0.5 + 1.0) / 3));
  CHECK(ranking.groups == 3);
  CHECK(ranking.only_right == 1);
  CHECK(ranking.without_right == 1);
}

TEST_CASE("Of equal scores the wrong answer stands first, whatever the order of the data") {
  const std::vector<std::size_t> groups = {0, 0, 0};
  const std::vector<float> scores = {1, 1, 1};
  CHECK(rank_answers(groups, scores, {true, false, false}).mrr == doctest::Approx(1.0 / 3));
  CHECK(rank_answers(groups, scores, {false, false, true}).map == doctest::Approx(1.0 / 3));
  CHECK(rank_answers(groups, scores, {true, false, true}).map == doctest::Approx((1.0 / 2 + 2.0 / 3) / 2));
}

TEST_CASE("What cannot be ranked: nothing, lists of other lengths, scores that are no numbers") {
  const AnswerRanking none = rank_answers({}, {}, {});
  CHECK(none.groups == 0);
  CHECK(none.map == 0);
  const std::vector<std::size_t> groups = {0, 0};
  const std::vector<float> scores = {1, std::numeric_limits<float>::quiet_NaN()};
  CHECK_THROWS_AS(rank_answers(groups, scores, {true, false}), Error);
  CHECK_THROWS_AS(rank_answers(groups, scores, {true}), Error);
}
