#pragma once

#include <atomic>

#include "heed/models/attention/attention.h"

namespace heed {

/// The number of clusters K of a ClusterFormer layer: the option "clusters", a number or "auto".
///
/// By default a block has 256 words: K = max(2, ceil(max_length / 256)), or 3 without a max_length.
/// The paper uses sqrt(max_length) for classification. On documents of 400 words that costs ten
/// points of accuracy: a word then sees only 40 others, and learning topics takes more. (The causal
/// form keeps sqrt(max_length), because its blocks follow time.)
///
/// "auto" starts from the cost and then looks at the clusters that the words actually form. A layer
/// needs
///
///   f(K) = 2 d (K + 2 N / K) + 5 d^2         multiplications per word, least near K0 = sqrt(2 N)
///
/// In the first 10 training passes K = K0 for the length N of each batch, and every pass measures
/// the largest group of words that belong together. Let p_k be the share of words in cluster k, and
/// u_k the unit vector from the mean of the words to centroid k. With the diversity of order
/// infinity of Leinster and Cobbold (2012), which counts similar clusters as one,
///
///   1 / D = max_k sum_l z_{k,l} p_l  over p_k > 0
///   z_{k,k} = 1,  z_{k,l} = max(0, u_k . u_l),  D <= K
///
/// K is then fixed at the largest number whose blocks of N / K words are twice as large as that
/// group: floor(D / 2) for the mean D. K must not exceed K0, and must cost at most 40 % more than
/// K0 at the mean length: f(K) <= 1.4 f(K0). A group may begin anywhere in a block; when blocks
/// have twice its size, at most every second position cuts it apart. The buffers "chosen" (0 while
/// measuring) and "measured" (passes, sum of N, sum of D) are saved with the model, so the same
/// seed gives the same K, even if a run is killed and resumed. A training step waits for the device
/// only while measuring.
class ClusterCount : public Module {
 public:
  explicit ClusterCount(const AttentionConfig& config);

  bool is_automatic() const { return automatic_; }
  /// The largest possible K, which is the number of centroids to allocate.
  std::int64_t most() const { return most_; }
  /// K for sequences of `length` words; with `training`, this call may fix K.
  std::int64_t of(std::int64_t length, bool training);
  /// Measures a training pass until K is fixed: words x [B, N, d], centroids [B or 1, K, d],
  /// assignment i32 [B, N] with K at padding, mask i32 [B, N] or undefined. The result goes to
  /// absorb().
  void observe(const Tensor& x, const Tensor& centroids, const Tensor& assignment, const Tensor& mask,
               Context& context);
  /// Adds the measurement of a pass, [3]: 1, N and D.
  void absorb(std::span<const Tensor> values) override;

  /// The rule itself, from the mean length, the mean D and the width d.
  static std::int64_t choose(double length, double effective, std::int64_t width);

 protected:
  void forget() override { known_ = 0; }

 private:
  std::int64_t width_, most_;
  bool automatic_ = false;
  std::atomic<std::int64_t> known_ = 0;  // K once it is final; 0: read the buffer
  Tensor chosen_, measured_;             // i32 [1], [3]
};

}  // namespace heed
