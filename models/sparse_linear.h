#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "heed/models/loss.h"
#include "heed/models/module.h"

namespace heed {

/// The meaning of outputs, and the loss that follows: probabilities of classes, of which one is
/// right (cross entropy); a yes-no decision each (binary cross entropy); or a number (half the
/// squared error).
enum class OutputKind { classes, decisions, numbers };

/// Returns where a convex function is least between two points, to within `width`, by golden-section search.
template <class Function>
double minimum_between(double low, double high, double width, const Function& value) {
  while (high - low > width) {
    const double part = 0.381966 * (high - low);
    if (value(low + part) < value(high - part))
      high -= part;
    else
      low += part;
  }
  return low;
}

/// Samples from which SparseLinear::fit() learns: sparse vectors, one after another, and targets.
struct SparseSamples {
  std::vector<std::int64_t> ends = {};  ///< of each sample, in the two below
  Tokens ids = {};                      ///< distinct within a sample
  std::vector<float> values = {};
  /// [n, outputs]: 1 for the classes of a sample, otherwise 0; or its numbers.
  std::vector<float> targets = {};
  std::vector<float> weights = {};        ///< of the samples; empty: all are 1
  std::vector<std::int32_t> groups = {};  ///< samples of a group are left out together; empty: each alone
  OutputKind kind = OutputKind::classes;

  std::int64_t size() const { return static_cast<std::int64_t>(ends.size()); }
  void add(std::span<const std::int32_t> row_ids, std::span<const float> row_values);
};

/// A linear classifier over sparse features that complements a deep one (Cheng et al. 2016, arXiv
/// 1606.07792, eq. 3). From few texts it learns which words and parts of words matter.
///
///   logits = 10 sum_f x_f V[f],    x_f = value_f a_f / (sqrt(2) length of the group of f)
///
/// V is the table "weight" [features, classes], initially 0. fit() computes the V of least loss. If
/// gradients train it instead, the 10 acts as a larger learning rate: Adam's even steps then also
/// reach the weights of rare features. The buffer "features" [features, 3] holds the weights a_f,
/// initially 1, each in the column of its group. Each group of features (group_ends()) has the same
/// total length in every sample. The last group may also have the numbers of a vector.
///
/// The buffer "shares" [2] holds the weights of the deep and of the sparse logits in a prediction.
/// Until fit_shares() sets them they are 0.2 and 0.75, or 0.5 each for a single output, a number.
class SparseLinear : public Module {
 public:
  /// The table has `features` rows, or fewer if it would exceed 2^25 elements, but at least 1,024 of
  /// them.
  SparseLinear(std::int64_t features, std::int64_t classes, std::int64_t vector = 0);
  /// Returns the logits [B, classes].
  Tensor operator()(const SparseBatch& batch) const;
  static constexpr std::size_t groups = 3;
  /// Returns the ends of the groups among the ids: words, parts of words, and 64 or fewer numbers with, before
  /// them, those of a vector. `features` counts these, too.
  static std::array<std::int64_t, groups> group_ends(std::int64_t features, std::int64_t vector = 0);
  std::int64_t vector() const { return vector_; }

  /// The weights of features, a choice of fit().
  struct Weighting {
    bool uses_ratios = false;  ///< whether they have a factor of count ratios
    bool uses_vector = true;   ///< or whether those of the vector are 0
  };
  /// The choices of fit(), and the loss to expect of new samples.
  struct Fit {
    double strength = 0;  ///< C in eq. 1
    Weighting weighting = {};
    double loss = 0;  ///< the mean of samples left out; 0: none were
  };
  /// Computes V and a. V is the minimum of
  ///
  ///   |U|^2 / 2 + C sum_i w_i loss(x_i U, y_i)                                                  (1)
  ///
  /// times a number that gives the answers the right confidence. Samples that were left out choose
  /// this number, C, and a: ln((1 + n) / (1 + n_f)) + 1 for n samples, of which n_f have the feature
  /// (TF-IDF), or this times the logarithm of the feature's count ratio (Wang and Manning 2012). With
  /// fewer than 20 samples C is 8, and more than 64 outputs have no ratios. Vectors count unless the loss is less
  /// without them. The
  /// result has the same bits for any number of threads. Throws an Error if there are no samples, or
  /// if their targets, weights, groups or ids do not fit.
  Fit fit(const SparseSamples& samples);

  /// Sets the shares, at least 0, that minimize the cross entropy of held-out samples (stacking,
  /// Wolpert 1992). They correct the deep logits, which are too large because the deep part
  /// memorizes more of a small training set. `logits` holds the classes' deep logits and then their
  /// sparse ones, for each sample; samples whose label is not a class are skipped. The prior is
  /// normal around the initial shares, with deviations of 0.1 and 0.2, as many data sets have it.
  void fit_shares(std::span<const std::vector<float>> logits, std::span<const std::int32_t> labels);
  /// Sets the shares where a sample may have any number of classes. `labels` holds the classes of
  /// each sample; the loss is that of ClassLogits::multilabel_loss().
  void fit_shares(std::span<const std::vector<float>> logits,
                  std::span<const std::vector<std::int32_t>> labels);
  /// Sets the shares for a single output, a number, by least squares. `outputs` holds the deep and
  /// the sparse output for each sample, in units in which the targets have a deviation near 1.
  void fit_shares(std::span<const std::vector<float>> outputs, std::span<const float> targets);

  Tensor weight, feature_weights, shares;

 protected:
  static constexpr double table_scale = 10;
  void set_shares(const std::array<double, 2>& found);
  static void overwrite(const Tensor& tensor, std::span<const float> values);

 private:
  std::int64_t vector_;
  template <class Label>
  void fit_to(std::span<const std::vector<float>> logits, std::span<const Label> labels);
  void set_feature_weights(const std::vector<float>& weights);
};

}  // namespace heed
