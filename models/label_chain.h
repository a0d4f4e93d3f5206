#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heed {

/// A linear-chain conditional random field over the labels of a sequence (Lafferty et al. 2001):
///
///   p(y) = exp(sum_t z[t, y_t] + sum_{t > 0} T[y_{t-1}, y_t]) / Z
///
/// with logits z [n, K] and transitions T [K, K]; without transitions each label is a softmax by itself.
/// Sums are scaled at each position, so that no length overflows (Rabiner 1989, section V.A).
class LabelChain {
 public:
  /// `transitions` may be empty: all are 0. They must outlive this.
  LabelChain(std::vector<float> logits, std::span<const float> transitions, std::size_t labels);

  double log_partition() const { return logs_.empty() ? 0 : logs_.back(); }
  /// -log p(y).
  double loss(std::span<const std::int32_t> labels) const { return log_partition() - score(0, labels); }
  /// Returns p(y_t = k) [n, K].
  std::vector<float> marginals() const;
  /// Adds the expected number of times that label j follows i to counts [K, K].
  void add_pairs(std::span<double> counts) const;
  /// Returns the likeliest labels (Viterbi 1967), with `offsets` [K] added to all logits of a label; empty: none are.
  std::vector<std::int32_t> best(std::span<const float> offsets = {}) const;
  /// Returns log p(y_t = labels[0], y_{t+1} = labels[1], ...), whatever the other labels.
  double log_probability(std::size_t t, std::span<const std::int32_t> labels) const;

 private:
  /// The log of the score of labels from position t on, without what is before and behind.
  double score(std::size_t t, std::span<const std::int32_t> labels) const;

  std::vector<float> logits_;
  std::span<const float> transitions_;
  std::size_t k_, size_;
  std::vector<double> factors_;           // [K, K], exp(T)
  std::vector<double> here_;              // [n, K], exp(z - its maximum)
  std::vector<double> forward_, behind_;  // [n, K]: scaled sums up to a position, and behind it
  std::vector<double> scales_, logs_;     // [n]: the sum at a position; the log of Z up to it
};

}  // namespace heed
