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

/// What fit() learns.
struct ChainFit {
  Descent table, transitions;

  ChainFit(std::span<const ChainSample> samples, std::int64_t features, std::size_t classes)
      : table(static_cast<std::size_t>(features) * classes),
        transitions(classes * classes),
        k_(classes),
        groups_(SparseLinear::group_ends(features)),
        shares_(static_cast<std::size_t>(features)) {
    for (const ChainSample& one : samples) {
      for_each_feature(one, [&](std::size_t, std::size_t id, float) { ++shares_[id]; });
      words_ += static_cast<float>(one.words.size());
    }
    for (float& share : shares_) share = 1 / std::max(share, 1.F);
  }

  /// Takes a step from the loss of a sequence.
  void learn(const ChainSample& one, float rate) {
    constexpr auto strength = static_cast<float>(strength_of_chains);
    std::vector<float> logits(one.words.size() * k_);
    for_each_feature(one, [&](std::size_t word, std::size_t id, float x) {
      for (std::size_t c = 0; c < k_; ++c) logits[word * k_ + c] += x * table.weights[id * k_ + c];
    });
    const LabelChain chain(std::move(logits), transitions.weights, k_);
    std::vector<float> slopes = chain.marginals();  // those of the loss by the logits
    std::vector<double> pairs(k_ * k_);             // and by the transitions
    chain.add_pairs(pairs);
    for (std::size_t word = 0; word < one.words.size(); ++word) {
      const auto label = static_cast<std::size_t>(one.labels[word]);
      --slopes[word * k_ + label];
      if (word > 0) --pairs[static_cast<std::size_t>(one.labels[word - 1]) * k_ + label];
    }
    const float share = static_cast<float>(one.words.size()) / words_;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      transitions.step(i, strength * static_cast<float>(pairs[i]) + share * transitions.weights[i], rate);
    for_each_feature(one, [&](std::size_t word, std::size_t id, float x) {
      for (std::size_t c = 0; c < k_; ++c) {
        const std::size_t i = id * k_ + c;
        table.step(i, strength * x * slopes[word * k_ + c] + shares_[id] * table.weights[i], rate);
      }
    });
  }

 private:
  /// Calls visit(word, id, x) with the x of SparseLinear for each feature of each word.
  void for_each_feature(const ChainSample& one, const auto& visit) const {
    for (std::size_t word = 0; word < one.words.size(); ++word) {
      std::array<float, SparseLinear::groups> counts{};
      const auto count = [&](std::int32_t id) -> float& {
        return counts[static_cast<std::size_t>(std::ranges::upper_bound(groups_, id) - groups_.begin())];
      };
      for (const std::int32_t id : one.words[word]) ++count(id);
      for (const std::int32_t id : one.words[word])
        visit(word, static_cast<std::size_t>(id), 1 / std::sqrt(2 * count(id)));
    }
  }

  std::size_t k_;
  std::array<std::int64_t, SparseLinear::groups> groups_;
  std::vector<float> shares_;  // of each feature: 1 / the number of words that have it
  float words_ = 0;
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

void SparseChain::fit(std::span<const ChainSample> samples) {
  check(!samples.empty(), "a CRF needs sequences to learn from, got none");
  const auto check_all = [](const Tokens& list, std::int64_t most, const char* what) {
    for (const std::int32_t one : list)
      check(one >= 0 && one < most, what, ' ', one, " is not one of the ", most, " of the CRF");
  };
  for (const ChainSample& one : samples) {
    check(one.words.size() == one.labels.size(), "a CRF got ", one.words.size(), " words with ",
          one.labels.size(), " labels");
    check_all(one.labels, weight.size(1), "label");
    for (const Tokens& word : one.words) check_all(word, weight.size(0), "sparse feature");
  }
  ChainFit fit(samples, weight.size(0), static_cast<std::size_t>(weight.size(1)));
  std::vector<std::size_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t passes = std::max(fewest_passes, fewest_sequences_read / order.size());
  Draws random({});
  for (std::size_t pass = 0; pass < passes; ++pass) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double done =
          static_cast<double>(pass) + static_cast<double>(i) / static_cast<double>(order.size());
      fit.learn(samples[order[i]], static_cast<float>(first_rate * (1 - done / static_cast<double>(passes))));
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
  const auto tried_loss = [&] {
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
        return tried_loss();
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
