#pragma once

#include "heed/models/attention/attention.h"

// What the two forms of ClusterFormer share: the similarity and the losses that shape the clusters.

namespace heed {

/// phi(x, y) = scale cos(x, y), or scale x . y: options "phi_scale" (1) and "cosine" (true).
class Similarity {
 public:
  explicit Similarity(const Options& options);
  /// a [..., K, d], b [..., N, d] -> phi of all pairs, [..., K, N].
  Tensor of_pairs(const Tensor& a, const Tensor& b) const;
  /// phi of all pairs of a and b W^T, [..., K, N], with W [out, in]: as a product, (a W) b^T, which takes
  /// K d^2 in place of N d^2.
  Tensor of_projected(const Tensor& a, const Tensor& b, const Tensor& weight) const;
  /// The sum of phi(a_i, b_i) over all rows of equal shape.
  Tensor sum_of_rows(const Tensor& a, const Tensor& b) const;
  /// What the sums above multiply: x itself, or its unit vectors.
  Tensor prepared(const Tensor& x) const;

 private:
  double scale_;
  bool cosine_;
};

/// The losses of section 3.2 with their weights, options "lambda1" and "lambda2" (0.01 each).
class ClusterLosses {
 public:
  ClusterLosses(const Options& options, const Similarity& similarity);
  /// Adds "clustering" L1 and "centroid_sorting" L2 to the pass. x [B, N, d], centroids [B or 1, K, d],
  /// assignment i32 [B, N] (K: padding), mask [B, N].
  void add(const Tensor& x, const Tensor& centroids, const Tensor& assignment, const Tensor& mask,
           Context& context) const;

 private:
  Similarity similarity_;
  double lambda1_, lambda2_;
};

/// The strictly causal form.
std::unique_ptr<Attention> make_causal_clusterformer(const AttentionConfig& config);

}  // namespace heed
