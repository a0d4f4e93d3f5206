#include "heed/models/label_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "heed/base/error.h"

namespace heed {

LabelChain::LabelChain(std::span<const float> logits, std::span<const float> transitions, std::size_t labels)
    : logits_(logits),
      transitions_(transitions),
      k_(labels),
      size_(logits.size() / labels),
      factors_(labels * labels, 1),
      here_(logits.size()),
      forward_(logits.size()) {
  check(logits.size() % labels == 0 && (transitions.empty() || transitions.size() == labels * labels),
        "a chain of ", labels, " labels got ", logits.size(), " logits and ", transitions.size(),
        " transitions");
  for (std::size_t i = 0; i < transitions.size(); ++i)
    factors_[i] = std::exp(static_cast<double>(transitions[i]));
  std::vector<double> before(k_, 1);
  for (std::size_t t = 0; t < size_; ++t) {
    double* const here = &forward_[t * k_];
    if (t > 0) {
      std::ranges::fill(before, 0);
      for (std::size_t i = 0; i < k_; ++i)
        for (std::size_t j = 0; j < k_; ++j) before[j] += here[i - k_] * factors_[i * k_ + j];
    }
    double largest = logit(t, 0), sum = 0;
    for (std::size_t j = 1; j < k_; ++j) largest = std::max(largest, logit(t, j));
    for (std::size_t j = 0; j < k_; ++j) {
      here_[t * k_ + j] = std::exp(logit(t, j) - largest);
      sum += here[j] = before[j] * here_[t * k_ + j];
    }
    sum = std::max(sum, std::numeric_limits<double>::min());
    for (std::size_t j = 0; j < k_; ++j) here[j] /= sum;
    scales_.push_back(sum);
    logs_.push_back(log_partition_ += largest + std::log(sum));
  }
}

void LabelChain::look_behind() {
  if (!behind_.empty()) return;
  behind_.assign(forward_.size(), 1);
  std::vector<double> there(k_);
  for (std::size_t t = size_; t-- > 1;) {
    for (std::size_t j = 0; j < k_; ++j) there[j] = here_[t * k_ + j] * behind_[t * k_ + j] / scales_[t];
    for (std::size_t i = 0; i < k_; ++i)
      behind_[(t - 1) * k_ + i] = std::inner_product(there.begin(), there.end(), &factors_[i * k_], 0.);
  }
}

double LabelChain::score(std::size_t t, std::span<const std::int32_t> labels) const {
  double sum = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    sum += logit(t + i, label);
    if (i > 0) sum += transition(static_cast<std::size_t>(labels[i - 1]), label);
  }
  return sum;
}

double LabelChain::loss(std::span<const std::int32_t> labels) const {
  return log_partition_ - score(0, labels);
}

std::vector<float> LabelChain::marginals() {
  look_behind();
  std::vector<float> found(forward_.size());
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = static_cast<float>(forward_[i] * behind_[i]);
  return found;
}

void LabelChain::add_pairs(double factor, std::span<double> counts) {
  look_behind();
  for (std::size_t t = 1; t < size_; ++t)
    for (std::size_t i = 0; i < k_; ++i) {
      const double before = factor * forward_[(t - 1) * k_ + i] / scales_[t];
      for (std::size_t j = 0; j < k_; ++j)
        counts[i * k_ + j] += before * factors_[i * k_ + j] * here_[t * k_ + j] * behind_[t * k_ + j];
    }
}

std::vector<std::int32_t> LabelChain::best() const {
  std::vector<double> scores(k_), next(k_);
  std::vector<std::size_t> from(logits_.size());
  for (std::size_t t = 0; t < size_; ++t) {
    for (std::size_t j = 0; j < k_; ++j) {
      std::size_t likeliest = 0;
      for (std::size_t i = 1; t > 0 && i < k_; ++i)
        if (scores[i] + transition(i, j) > scores[likeliest] + transition(likeliest, j)) likeliest = i;
      from[t * k_ + j] = likeliest;
      next[j] = logit(t, j) + (t > 0 ? scores[likeliest] + transition(likeliest, j) : 0);
    }
    scores.swap(next);
  }
  std::vector<std::int32_t> labels(size_);
  auto label = static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());
  for (std::size_t t = size_; t-- > 0; label = from[t * k_ + label])
    labels[t] = static_cast<std::int32_t>(label);
  return labels;
}

double LabelChain::log_probability(std::size_t t, std::span<const std::int32_t> labels) {
  if (labels.empty()) return 0;
  look_behind();
  const std::size_t last = t + labels.size() - 1;
  const auto first_label = static_cast<std::size_t>(labels.front()),
             last_label = static_cast<std::size_t>(labels.back());
  // forward and behind are scaled; what lies between is not
  const double log_forward = std::log(std::max(forward_[t * k_ + first_label], 1e-300)) + logs_[t];
  const double log_behind = std::log(std::max(behind_[last * k_ + last_label], 1e-300)) - logs_[last];
  return std::min(0., log_forward + score(t, labels) - logit(t, first_label) + log_behind);
}

}  // namespace heed
