#include "heed/models/label_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "heed/base/error.h"

namespace heed {

LabelChain::LabelChain(std::vector<float> logits, std::span<const float> transitions, std::size_t labels)
    : logits_(std::move(logits)),
      transitions_(transitions),
      k_(labels),
      size_(logits_.size() / labels),
      factors_(labels * labels, 1),
      here_(logits_.begin(), logits_.end()),
      forward_(logits_.size()),
      behind_(logits_.size(), 1) {
  check(logits_.size() % k_ == 0 && (transitions.empty() || transitions.size() == k_ * k_), "a chain of ", k_,
        " labels got ", logits_.size(), " logits and ", transitions.size(), " transitions");
  for (std::size_t i = 0; i < transitions.size(); ++i)
    factors_[i] = std::exp(static_cast<double>(transitions[i]));
  std::vector<double> before(k_, 1);  // and, on the way back, behind
  for (std::size_t t = 0; t < size_; ++t) {
    double *const here = &here_[t * k_], *const forward = &forward_[t * k_];
    if (t > 0) {
      std::ranges::fill(before, 0);
      for (std::size_t i = 0; i < k_; ++i)
        for (std::size_t j = 0; j < k_; ++j) before[j] += forward[i - k_] * factors_[i * k_ + j];
    }
    const double largest = *std::max_element(here, here + k_);
    double sum = std::numeric_limits<double>::min();
    for (std::size_t j = 0; j < k_; ++j) {
      here[j] = std::exp(here[j] - largest);
      sum += forward[j] = before[j] * here[j];
    }
    for (std::size_t j = 0; j < k_; ++j) forward[j] /= sum;
    scales_.push_back(sum);
    logs_.push_back(log_partition() + largest + std::log(sum));
  }
  for (std::size_t t = size_; t-- > 1;) {
    for (std::size_t j = 0; j < k_; ++j) before[j] = here_[t * k_ + j] * behind_[t * k_ + j] / scales_[t];
    for (std::size_t i = 0; i < k_; ++i)
      behind_[(t - 1) * k_ + i] = std::inner_product(before.begin(), before.end(), &factors_[i * k_], 0.);
  }
}

double LabelChain::score(std::size_t t, std::span<const std::int32_t> labels) const {
  double sum = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    sum += logits_[(t + i) * k_ + label];
    if (i > 0 && !transitions_.empty())
      sum += transitions_[static_cast<std::size_t>(labels[i - 1]) * k_ + label];
  }
  return sum;
}

std::vector<float> LabelChain::marginals() const {
  std::vector<float> found(forward_.size());
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = static_cast<float>(forward_[i] * behind_[i]);
  return found;
}

void LabelChain::add_pairs(std::span<double> counts) const {
  for (std::size_t t = 1; t < size_; ++t)
    for (std::size_t i = 0; i < k_; ++i) {
      const double before = forward_[(t - 1) * k_ + i] / scales_[t];
      for (std::size_t j = 0; j < k_; ++j)
        counts[i * k_ + j] += before * factors_[i * k_ + j] * here_[t * k_ + j] * behind_[t * k_ + j];
    }
}

std::vector<std::int32_t> LabelChain::best(std::span<const float> offsets) const {
  std::vector<double> scores(k_), next(k_);
  std::vector<std::size_t> from(logits_.size());
  for (std::size_t t = 0; t < size_; ++t) {
    for (std::size_t j = 0; j < k_; ++j) {
      const auto score_from = [&](std::size_t i) {
        return t == 0 ? 0 : scores[i] + (transitions_.empty() ? 0 : transitions_[i * k_ + j]);
      };
      std::size_t& likeliest = from[t * k_ + j];
      for (std::size_t i = 1; i < k_; ++i)
        if (score_from(i) > score_from(likeliest)) likeliest = i;
      next[j] = score_from(likeliest) + logits_[t * k_ + j] + (offsets.empty() ? 0 : offsets[j]);
    }
    scores.swap(next);
  }
  std::vector<std::int32_t> labels(size_);
  auto label = static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());
  for (std::size_t t = size_; t-- > 0; label = from[t * k_ + label])
    labels[t] = static_cast<std::int32_t>(label);
  return labels;
}

double LabelChain::log_probability(std::size_t t, std::span<const std::int32_t> labels) const {
  if (labels.empty()) return 0;
  const std::size_t last = t + labels.size() - 1;
  const auto first = t * k_ + static_cast<std::size_t>(labels.front());
  const double behind = behind_[last * k_ + static_cast<std::size_t>(labels.back())];
  // forward and behind are scaled; what lies between is not
  const double found = std::log(std::max(forward_[first], 1e-300)) + logs_[t] + score(t, labels) -
                       logits_[first] + std::log(std::max(behind, 1e-300)) - logs_[last];
  return std::min(found, 0.);  // in this order NaN remains
}

}  // namespace heed
