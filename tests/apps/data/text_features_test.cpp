// Sparse features of texts and pairs, and the linear part of a classifier that reads them.

#include "heed/apps/data/text_features.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "heed/apps/tasks/labelled.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/classifier.h"

using namespace heed;

namespace {

constexpr std::int64_t many = 1 << 30;  // so many that nothing collides

std::set<std::int32_t> ids_of(const TextFeatures& features) {
  return {features.ids.begin(), features.ids.end()};
}

/// How many features two texts have in common.
std::size_t in_common(std::string_view text, std::string_view other) {
  const std::set<std::int32_t> a = ids_of(text_features(text, many)), b = ids_of(text_features(other, many));
  return static_cast<std::size_t>(std::ranges::count_if(a, [&](std::int32_t id) { return b.contains(id); }));
}

double length_of(const TextFeatures& features) {
  double squares = 0;
  for (const float value : features.values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

}  // namespace

TEST_CASE("A text's features are its words, pairs of words and runs of 1 to 5 characters") {
  // "ab": the word; of " ab " 4 runs of one character, of which two are equal, 3 of two, 2 of three, 1 of four
  CHECK(text_features("ab", many).ids.size() == 10);
  // The capitals are a feature more.
  CHECK(text_features("Ab", many).ids.size() == 11);
  CHECK(in_common("Ab", "ab") == 10);
  CHECK(in_common("one two", "two one") == text_features("one two", many).ids.size() - 1);  // the pair
  CHECK(in_common("walking", "walked") > in_common("walking", "running"));
  CHECK(in_common("সুন্দর", "সুন্দরী") > 10);  // endings of every script
  CHECK(in_common("天気がいい", "天気がわるい") > 5);
  CHECK(text_features("", many).ids.empty());
  const std::string long_text(1 << 16, 'a');  // all that is read
  CHECK(text_features(long_text + " b", many).ids == text_features(long_text, many).ids);
  CHECK_THROWS_AS(text_features("a", 0), Error);
}

TEST_CASE("Features have length 1 and ids below their count, each once, whatever the text") {
  std::string long_text;
  for (int i = 0; i < 5000; ++i) long_text += std::to_string(i % 700) + " ";
  for (const std::string& text : {std::string("a"), std::string("\xFF\xFE b"), long_text})
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, std::int64_t{131072}}) {
      const TextFeatures features = text_features(text, count);
      CHECK(length_of(features) == doctest::Approx(1).epsilon(1e-5));
      CHECK(ids_of(features).size() == features.ids.size());
      CHECK(std::ranges::all_of(features.ids, [&](std::int32_t id) { return id >= 0 && id < count; }));
      CHECK(text_features(text, count).ids == features.ids);
    }
  // A feature that occurs e times as often has 1 more.
  const TextFeatures often = text_features("ab ab ab ab ab ab ab ab", many);
  CHECK(*std::ranges::max_element(often.values) / *std::ranges::min_element(often.values) <
        doctest::Approx(1 + std::log(17)));
}

TEST_CASE("Features of a pair tell which text has them, and how much the texts share") {
  const auto ids = [](std::string_view first, std::string_view second) {
    return ids_of(pair_features(first, second, many));
  };
  CHECK(ids("a b", "a c") != ids("a c", "a b"));
  // Two pairs without a word in common share the features of how much their texts have in common.
  const std::set<std::int32_t> equal = ids("abc", "abc"), also_equal = ids("xyz", "xyz"),
                               not_equal = ids("mno", "pqr");
  const auto shared = [](const std::set<std::int32_t>& some, const std::set<std::int32_t>& others) {
    return std::ranges::count_if(some, [&](std::int32_t id) { return others.contains(id); });
  };
  CHECK(shared(equal, also_equal) > shared(equal, not_equal));
  CHECK_NOTHROW(pair_features("", "", many));
}

TEST_CASE("The sparse part of a classifier sums values times rows, and padding adds nothing") {
  Initialiser initialiser(1);
  SparseLinear linear(5, 2, initialiser);
  CHECK(linear.weight.shape() == Shape{5, 2});
  linear.weight = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2});
  const SparseBatch batch = sparse_batch({{{0, 4}, {0.5F, 2}}, {{2}, {1}}, {}}, Device());
  const std::vector<double> found = linear(batch).to_doubles();
  const std::vector<double> expected = {185, 210, 50, 60, 0, 0};  // ten times the sums
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
  CHECK_THROWS_AS(linear(SparseBatch()), Error);
  // Many classes share 16 columns.
  SparseLinear low_rank(1000, 77, initialiser);
  CHECK(low_rank.weight.shape() == Shape{1000, 16});
  CHECK(low_rank(sparse_batch({{{3}, {1}}}, Device())).shape() == Shape{1, 77});
}

TEST_CASE("Both parts of a classifier learn by a loss of their own, and answer together") {
  const Tensor deep = Tensor::from(std::vector<float>{1, -1}, {1, 2});
  const Tensor sparse = Tensor::from(std::vector<float>{0, 3}, {1, 2});
  const Tensor label = Tensor::from(Tokens{1}, {1});
  const ClassLogits both{deep, sparse, Tensor::from(std::vector<float>{0.5F, 2}, {2})};
  CHECK(both.together().to_doubles() == std::vector<double>{0.5, 5.5});
  CHECK(both.side_by_side().to_doubles() == std::vector<double>{1, -1, 0, 3});
  CHECK(both.loss(label, 0).sum.item() ==
        doctest::Approx((sum(cross_entropy(deep, label)).item() + sum(cross_entropy(sparse, label)).item()) /
                        2));
  CHECK(ClassLogits{deep}.together().to_doubles() == deep.to_doubles());
  const Tensor twice = Tensor::from(std::vector<float>{2}, {1});
  CHECK(both.loss(label, 0, twice).sum.item() == doctest::Approx(2 * both.loss(label, 0).sum.item()));
}

namespace {

constexpr double first_deep = 0.25, first_sparse = 1;

/// What fit_shares() makes small: the cross entropy of two classes, and the prior.
double cost(const std::vector<std::vector<float>>& logits, const Tokens& labels, double deep, double sparse) {
  double total = (std::pow(deep / first_deep - 1, 2) + std::pow(sparse / first_sparse - 1, 2)) / 2;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double ahead = deep * (logits[i][1] - logits[i][0]) + sparse * (logits[i][3] - logits[i][2]);
    total += std::log1p(std::exp(labels[i] == 1 ? -ahead : ahead));
  }
  return total;
}

std::vector<double> fitted(const std::vector<std::vector<float>>& logits, const Tokens& labels) {
  Initialiser initialiser(1);
  SparseLinear linear(5, 2, initialiser);
  linear.fit_shares(logits, labels);
  return linear.shares.to_doubles();
}

}  // namespace

TEST_CASE("The shares of the parts are those that suit held-out samples best") {
  // A sparse part that is right in three of four samples, beside a deep one that is right in six of seven.
  std::vector<std::vector<float>> logits;
  Tokens labels;
  for (int i = 0; i < 200; ++i) {
    labels.push_back(i % 2);
    const float right = i % 2 == 0 ? -1.F : 1.F;
    logits.push_back({0, i % 7 == 0 ? -right : right, 0, i % 4 < 1 ? -3 * right : 3 * right});
  }
  const std::vector<double> shares = fitted(logits, labels);
  const double best = cost(logits, labels, shares[0], shares[1]);
  CHECK(best < cost(logits, labels, first_deep, first_sparse) - 10);
  for (const double factor : {0.9, 0.99, 1.01, 1.1}) {
    CHECK(cost(logits, labels, shares[0] * factor, shares[1]) > best);
    CHECK(cost(logits, labels, shares[0], shares[1] * factor) > best);
  }
}

TEST_CASE("A part that is wrong on held-out samples counts for nothing, and few samples change little") {
  const std::vector<float> deep_is_wrong = {4, -4, -1, 1}, large = {-1e30F, 1e30F, -1e30F, 1e30F};
  const std::vector<double> shares = fitted(std::vector(50, deep_is_wrong), Tokens(50, 1));
  CHECK(shares[0] == 0);
  CHECK(shares[1] > 1);
  CHECK(shares[1] < 5);  // right in all samples, yet finite
  const std::vector<double> none = fitted({}, {});
  CHECK(none[0] == doctest::Approx(first_deep));
  CHECK(none[1] == doctest::Approx(first_sparse));
  CHECK(fitted({deep_is_wrong}, {7}) == none);  // a label that training lacks
  for (const std::int32_t label : {0, 1})
    for (const double share : fitted({large, deep_is_wrong}, {label, 1})) CHECK(std::isfinite(share));
  CHECK_THROWS_AS(fitted({large}, {}), Error);
}
