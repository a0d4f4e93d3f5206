#include "heed/models/sparse_chain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/random.h"
#include "heed/core/thread_pool.h"

namespace heed {
namespace {

constexpr double strength_of_chains = 128;  // C in eq. 1
constexpr double first_rate = 0.5;
constexpr std::size_t fewest_passes = 8, fewest_sequences_read = 4000;

/// Weights, and the sums of the squares of their gradients.
struct Descent {
  std::vector<float> weights, squares;

  explicit Descent(std::size_t size) : weights(size), squares(size, 1e-12F) {}
  void step(std::size_t i, float gradient, float rate) {
    squares[i] += gradient * gradient;
    weights[i] -= rate * gradient / std::sqrt(squares[i]);
  }
};

/// The features of words, scaled as in SparseLinear, and what fit() learns from them.
struct ChainFit {
  Descent table, transitions;

  ChainFit(const SparseSamples& words, std::span<const std::int32_t> labels,
           std::span<const std::int64_t> ends, std::int64_t features, std::size_t classes)
      : table(static_cast<std::size_t>(features) * classes),
        transitions(classes * classes),
        words_(words),
        labels_(labels),
        ends_(ends),
        k_(classes),
        x_(words.values),
        shares_(static_cast<std::size_t>(features)) {
    const auto groups = SparseLinear::group_ends(features);
    for (std::size_t word = 0; word < labels.size(); ++word) {
      std::array<float, SparseLinear::groups> squares{};
      const auto square = [&](std::size_t i) -> float& {
        return squares[static_cast<std::size_t>(std::ranges::upper_bound(groups, words.ids[i]) - groups.begin())];
      };
      for (std::size_t i = begin(word); i < begin(word + 1); ++i) square(i) += x_[i] * x_[i], ++shares_[id(i)];
      for (std::size_t i = begin(word); i < begin(word + 1); ++i) x_[i] /= std::sqrt(2 * square(i) + 1e-30F);
    }
    for (float& share : shares_) share = 1 / std::max(share, 1.F);
  }

  /// Takes a step from the loss of a sequence.
  void learn(std::size_t sequence, float rate) {
    const std::size_t first = sequence == 0 ? 0 : static_cast<std::size_t>(ends_[sequence - 1]),
                      last = static_cast<std::size_t>(ends_[sequence]);
    std::vector<float> logits((last - first) * k_);
    for (std::size_t word = first; word < last; ++word)
      for (std::size_t i = begin(word); i < begin(word + 1); ++i)
        for (std::size_t c = 0; c < k_; ++c)
          logits[(word - first) * k_ + c] += x_[i] * table.weights[id(i) * k_ + c];
    LabelChain chain(std::move(logits), transitions.weights, k_);
    std::vector<double> pairs(k_ * k_);
    chain.add_pairs(pairs);
    for (std::size_t word = first + 1; word < last; ++word) --pairs[label(word - 1) * k_ + label(word)];
    const auto share = static_cast<float>(last - first) / static_cast<float>(labels_.size());
    for (std::size_t i = 0; i < pairs.size(); ++i)
      transitions.step(i, static_cast<float>(strength_of_chains * pairs[i]) + share * transitions.weights[i],
                       rate);
    std::vector<float> slopes = chain.marginals();
    for (std::size_t word = first; word < last; ++word) --slopes[(word - first) * k_ + label(word)];
    for (float& slope : slopes) slope *= static_cast<float>(strength_of_chains);
    for (std::size_t word = first; word < last; ++word)
      for (std::size_t i = begin(word); i < begin(word + 1); ++i)
        for (std::size_t c = 0, at = id(i) * k_; c < k_; ++c, ++at)
          table.step(at, x_[i] * slopes[(word - first) * k_ + c] + shares_[id(i)] * table.weights[at], rate);
  }

 private:
  std::size_t begin(std::size_t word) const {
    return word == 0 ? 0 : static_cast<std::size_t>(words_.ends[word - 1]);
  }
  std::size_t id(std::size_t i) const { return static_cast<std::size_t>(words_.ids[i]); }
  std::size_t label(std::size_t word) const { return static_cast<std::size_t>(labels_[word]); }

  const SparseSamples& words_;
  const std::span<const std::int32_t> labels_;
  const std::span<const std::int64_t> ends_;
  const std::size_t k_;
  std::vector<float> x_, shares_;  // of each feature: 1 / the number of words that have it
};

}  // namespace

LabelChain ChainParts::chain(std::span<const float> logits) const {
  if (transitions.empty()) return {{logits.begin(), logits.end()}, {}, labels};
  std::vector<float> mixed;
  for (std::size_t i = 0; i < logits.size(); i += 2 * labels)
    for (std::size_t c = 0; c < labels; ++c)
      mixed.push_back(deep * logits[i + c] + sparse * logits[i + labels + c]);
  return {std::move(mixed), transitions, labels};
}

SparseChain::SparseChain(std::int64_t features, std::int64_t classes) : SparseLinear(features, classes) {
  add_buffer("transitions", transitions, Initialiser::constant({classes, classes}, 0));
  add_buffer("offsets", offsets, Initialiser::constant({classes}, 0));
}

void SparseChain::fit(const SparseSamples& words, std::span<const std::int32_t> labels,
                      std::span<const std::int64_t> ends) {
  const std::int64_t features = weight.size(0), k = weight.size(1);
  const auto within = [](std::int64_t most) {
    return [most](std::int64_t one) { return one >= 0 && one < most; };
  };
  check(!ends.empty() && ends.back() == words.size() && words.size() == std::ssize(labels) &&
            std::ranges::is_sorted(ends) && std::ranges::all_of(labels, within(k)) &&
            std::ranges::all_of(words.ids, within(features)),
        "a chain of ", k, " labels over ", features, " features got ", words.size(), " words, ", labels.size(),
        " labels and ", ends.size(), " sequences, or a label or feature out of range");
  ChainFit fit(words, labels, ends, features, static_cast<std::size_t>(k));
  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t passes = std::max(fewest_passes, fewest_sequences_read / order.size());
  Draws random({});
  for (std::size_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double done = static_cast<double>(pass) + static_cast<double>(i) / static_cast<double>(order.size());
      fit.learn(order[i], static_cast<float>(first_rate * (1 - done / static_cast<double>(passes))));
    }
  }
  for (float& one : fit.table.weights) one *= static_cast<float>(1 / table_scale);
  overwrite(weight.detach(), fit.table.weights);
  overwrite(transitions, fit.transitions.weights);
}

void SparseChain::fit_shares(std::span<const std::vector<float>> logits,
                             std::span<const std::vector<std::int32_t>> labels) {
  ChainParts tried = parts();
  const std::vector<float> full = cast(transitions, DType::f32).to_vector<float>();
  const auto loss_of_tried = [&] {
    for (std::size_t i = 0; i < full.size(); ++i) tried.transitions[i] = tried.sparse * full[i];
    std::vector<double> losses(logits.size());
    parallel_ranges(std::ssize(logits), 64, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        if (std::ranges::all_of(labels[i], [&](std::int32_t label) { return label < weight.size(1); }))
          losses[i] = tried.chain(logits[i]).loss(labels[i]);
    });
    return std::accumulate(losses.begin(), losses.end(), 0.);
  };
  tried.deep = 0.2F, tried.sparse = 1;
  for (int round = 0; round < 3; ++round)
    for (float* const share : {&tried.deep, &tried.sparse})
      *share = static_cast<float>(minimum_between(0, share == &tried.deep ? 2 : 1.5, 0.02, [&](double value) {
        *share = static_cast<float>(value);
        return loss_of_tried();
      }));
  set_shares({static_cast<double>(tried.deep), static_cast<double>(tried.sparse)});
}

ChainParts SparseChain::parts() const {
  const auto values = [](const Tensor& one) { return cast(one, DType::f32).to_vector<float>(); };
  const std::vector<float> own = values(shares);
  ChainParts parts{static_cast<std::size_t>(weight.size(1)), own[0], own[1], values(transitions),
                   values(offsets)};
  for (float& one : parts.transitions) one *= parts.sparse;
  return parts;
}

}  // namespace heed
