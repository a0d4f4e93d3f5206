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
#include "heed/core/random.h"
#include "heed/core/thread_pool.h"
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

}  // namespace

TEST_CASE("A text's features are its words, pairs of words and runs of 1 to 5 characters") {
  // "ab": the word; of " ab " 4 runs of one character, of which two are equal, 3 of two, 2 of three, 1 of four;
  // and the constant
  CHECK(text_features("ab", many).ids.size() == 11);
  // The capitals are a feature more.
  CHECK(text_features("Ab", many).ids.size() == 12);
  CHECK(in_common("Ab", "ab") == 11);
  CHECK(in_common("one two", "two one") == text_features("one two", many).ids.size() - 1);  // the pair
  CHECK(in_common("walking", "walked") > in_common("walking", "running"));
  CHECK(in_common("সুন্দর", "সুন্দরী") > 10);  // endings of every script
  CHECK(in_common("天気がいい", "天気がわるい") > 5);
  CHECK(text_features("", many).ids == Tokens{many - 1});
  const std::string long_text(1 << 16, 'a');  // all that is read
  CHECK(text_features(long_text + " b", many).ids == text_features(long_text, many).ids);
  CHECK_THROWS_AS(text_features("a", 0), Error);
}

TEST_CASE("Features have ids below their count, each once, in the range of their group, whatever the text") {
  std::string long_text;
  for (int i = 0; i < 5000; ++i) long_text += std::to_string(i % 700) + " ";
  for (const std::string& text : {std::string("a"), std::string("\xFF\xFE b"), long_text})
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{7}, std::int64_t{131072}}) {
      const TextFeatures features = text_features(text, count);
      CHECK(ids_of(features).size() == features.ids.size());
      CHECK(std::ranges::all_of(features.ids, [&](std::int32_t id) { return id >= 0 && id < count; }));
      CHECK(text_features(text, count).ids == features.ids);
    }
  // A feature that occurs e times as often has 1 more: the run " " occurs 16 times.
  const TextFeatures often = text_features("ab ab ab ab ab ab ab ab", many);
  CHECK(*std::ranges::max_element(often.values) == doctest::Approx(1 + std::log(16)));
  const auto [words, runs, numbers] = SparseLinear::group_ends(131072);
  CHECK(numbers == 131072);
  const std::set<std::int32_t> ids = ids_of(text_features("ab", 131072));
  CHECK(std::ranges::count_if(ids, [&](std::int32_t id) { return id < words; }) == 1);
  CHECK(std::ranges::count_if(ids, [&](std::int32_t id) { return id >= runs; }) == 1);
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

TEST_CASE("The sparse part of a classifier sums scaled values times rows, and padding adds nothing") {
  SparseLinear linear(8, 2);  // ids 0 to 2 are words, 3 to 5 runs, 6 and 7 numbers
  CHECK(linear.weight.shape() == Shape{8, 2});
  std::vector<float> table(16);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i + 1);
  linear.weight = Tensor::from(table, {8, 2});
  const SparseBatch batch = sparse_batch({{{0, 1, 4}, {3, 4, 7}}, {{2}, {1}}, {}}, Device());
  const std::vector<double> found = linear(batch).to_doubles();
  // Words have the length 5; each group counts as if its length were the square root of 1/2.
  const double unit = 10 / std::sqrt(2.);
  const std::vector<double> expected = {
      unit * (0.6 * 1 + 0.8 * 3 + 9), unit * (0.6 * 2 + 0.8 * 4 + 10), unit * 5, unit * 6, 0, 0};
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
  CHECK_THROWS_AS(linear(SparseBatch()), Error);
  CHECK(SparseLinear(131072, 77).weight.shape() == Shape{131072, 77});
  CHECK(SparseLinear(131072, 10'000).weight.shape() == Shape{3355, 10'000});  // at most 2^25 elements
}

namespace {

/// Samples of random features of a group, whose classes depend on some of them.
SparseSamples random_samples(std::int64_t count, std::size_t classes, OutputKind kind) {
  SparseSamples samples{.kind = kind};
  for (std::int64_t i = 0; i < count; ++i) {
    Tokens ids;
    std::vector<float> values;
    double score = 0;
    for (std::int32_t id = 0; id < 30; ++id) {
      const double draw = unit_interval(random_word({5}, static_cast<std::uint64_t>(i * 30 + id)));
      if (draw > 0.3) continue;
      ids.push_back(id);
      values.push_back(1 + static_cast<float>(draw));
      score += std::sin(id);
    }
    samples.add(ids, values);
    score += unit_interval(random_word({6}, static_cast<std::uint64_t>(i))) - 0.5;
    const std::size_t its_class = score < -0.5 ? 0 : score < 0.5 || classes == 2 ? 1 : 2;
    for (std::size_t c = 0; c < classes; ++c)
      samples.targets.push_back(classes == 1 ? static_cast<float>(score) : c == its_class ? 1.F : 0.F);
  }
  return samples;
}

/// The values x_f of a sample by feature, as SparseLinear defines them.
std::vector<double> scaled_values(const SparseSamples& samples, std::int64_t sample,
                                  const SparseLinear& linear) {
  const std::vector<double> weights = linear.feature_weights.to_doubles();
  const std::int64_t features = linear.weight.size(0);
  std::vector<double> x(static_cast<std::size_t>(features)), squares(3);
  const std::int64_t begin = sample == 0 ? 0 : samples.ends[static_cast<std::size_t>(sample - 1)];
  for (const bool divides : {false, true})
    for (std::int64_t i = begin; i < samples.ends[static_cast<std::size_t>(sample)]; ++i)
      for (std::size_t group = 0; group < 3; ++group) {
        const auto id = static_cast<std::size_t>(samples.ids[static_cast<std::size_t>(i)]);
        const double value =
            static_cast<double>(samples.values[static_cast<std::size_t>(i)]) * weights[3 * id + group];
        if (divides && value != 0) x[id] = value / std::sqrt(2 * squares[group]);
        if (!divides) squares[group] += value * value;
      }
  return x;
}

}  // namespace

TEST_CASE("The solved linear part is stationary: U = C sum_i (y_i - p_i) x_i, for a factor") {
  for (const OutputKind kind : {OutputKind::classes, OutputKind::decisions, OutputKind::numbers}) {
    const std::size_t outputs = kind == OutputKind::numbers ? 1 : 3, features = 64;
    const std::int64_t count = 150;
    const SparseSamples samples = random_samples(count, outputs, kind);
    SparseLinear linear(features, static_cast<std::int64_t>(outputs));
    const SparseLinear::Fit fit = linear.fit(samples);
    const std::vector<double> table = linear.weight.to_doubles();
    double least = 1e9;
    for (double factor = 0.3; factor < 4; factor *= 1.001) {
      std::vector<double> residual(features * outputs);
      double length = 0, rest = 0;
      for (std::size_t i = 0; i < residual.size(); ++i) residual[i] = -10 * table[i] / factor;
      for (const double u : residual) length += u * u;
      for (std::int64_t sample = 0; sample < count; ++sample) {
        const std::vector<double> x = scaled_values(samples, sample, linear);
        std::vector<double> z(outputs);
        for (std::size_t f = 0; f < features; ++f)
          for (std::size_t c = 0; c < outputs; ++c) z[c] += x[f] * 10 * table[f * outputs + c] / factor;
        double total = 0;
        for (const double one : z) total += std::exp(one);
        for (std::size_t c = 0; c < outputs; ++c) {
          const double p = kind == OutputKind::numbers   ? z[c]
                           : kind == OutputKind::classes ? std::exp(z[c]) / total
                                                         : 1 / (1 + std::exp(-z[c]));
          const double y = samples.targets[static_cast<std::size_t>(sample) * outputs + c];
          for (std::size_t f = 0; f < features; ++f)
            residual[f * outputs + c] += fit.strength * (y - p) * x[f];
        }
      }
      for (const double r : residual) rest += r * r;
      least = std::min(least, std::sqrt(rest / length));
    }
    CHECK(least < 0.03);
  }
}

TEST_CASE("The linear part is solved with the same bits by any number of threads, and whatever it is given") {
  const SparseSamples samples = random_samples(700, 2, OutputKind::classes);
  const int before = cpu_threads();
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 3}) {
    set_cpu_threads(threads);
    SparseLinear linear(64, 2);
    CHECK(linear.fit(samples).loss < 0.5);
    found.push_back(linear.weight.to_vector<float>());
  }
  set_cpu_threads(before);
  CHECK(found[0] == found[1]);

  // A random class tells nothing of another sample unless that is a copy, which a group excludes.
  SparseSamples copies{.kind = OutputKind::classes};
  for (std::int32_t i = 0; i < 200; ++i) {
    copies.add(Tokens{i / 2}, std::vector<float>{1});
    const bool first = random_word({7}, static_cast<std::uint64_t>(i / 2)) % 2 == 0;
    copies.targets.insert(copies.targets.end(), {first ? 1.F : 0.F, first ? 0.F : 1.F});
  }
  SparseLinear linear(512, 2);
  CHECK(linear.fit(copies).loss < 0.5);
  for (std::int32_t i = 0; i < 200; ++i) copies.groups.push_back(i / 2);
  CHECK(linear.fit(copies).loss > 0.69);

  SparseSamples odd{.kind = OutputKind::classes};  // a single sample, and one without features
  odd.add(Tokens{3}, std::vector<float>{1e30F});
  odd.targets = {1, 0};
  CHECK(std::isfinite(linear.fit(odd).loss));
  odd.add({}, {});
  odd.targets.insert(odd.targets.end(), {0, 1});
  CHECK(std::isfinite(linear.fit(odd).loss));
  for (const float one : linear.weight.to_vector<float>()) REQUIRE(std::isfinite(one));
  odd.ids[0] = 512;
  CHECK_THROWS_WITH_AS(linear.fit(odd), "sparse feature 512 is not one of the 512 of the model", Error);
  odd.targets.pop_back();
  CHECK_THROWS_WITH_AS(linear.fit(odd), doctest::Contains("needs 4 targets for 2 samples"), Error);
  CHECK_THROWS_AS(linear.fit({}), Error);
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

constexpr double first_deep = 0.2, first_sparse = 0.75;

/// What fit_shares() makes small: the cross entropy of two classes, and the prior.
double cost(const std::vector<std::vector<float>>& logits, const Tokens& labels, double deep, double sparse) {
  double total = (std::pow((deep - first_deep) / 0.1, 2) + std::pow((sparse - first_sparse) / 0.2, 2)) / 2;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double ahead = deep * (logits[i][1] - logits[i][0]) + sparse * (logits[i][3] - logits[i][2]);
    total += std::log1p(std::exp(labels[i] == 1 ? -ahead : ahead));
  }
  return total;
}

std::vector<double> fitted(const std::vector<std::vector<float>>& logits, const Tokens& labels) {
  SparseLinear linear(5, 2);
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
