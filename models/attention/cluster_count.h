#pragma once

#include <atomic>

#include "heed/models/attention/attention.h"

namespace heed {

/// The number of clusters K of a ClusterFormer layer: the option "clusters", a number or "auto".
///
/// Silent: blocks of 256 words, K = max(2, ceil(max_length / 256)), or 3 when no max_length is stated. The
/// paper has sqrt(max_length) for classification, which on documents of 400 words costs ten points of
/// accuracy: a word then sees 40 others, and topics are learned from more. (The causal form keeps
/// sqrt(max_length): its blocks lie in time.)
///
/// "auto" starts from the cost and then looks at the clusters that the words really form. A layer needs
///
///   f(K) = 2 d (K + 2 N / K) + 5 d^2              multiplications per word, least near K0 = sqrt(2 N)
///
/// In the first 10 training passes K = K0 for the length N of each batch, and every pass measures the largest
/// group of words that belong together: with p_k the share of words in cluster k, and u_k the unit vector
/// from the mean of the words to centroid k (the diversity of order infinity of Leinster and Cobbold 2012,
/// which counts alike clusters as one),
///
///   1 / D = max_k sum_l z_{k,l} p_l  over p_k > 0,   z_{k,k} = 1,  z_{k,l} = max(0, u_k . u_l),  D <= K
///
/// Then K becomes the largest number whose blocks of N / K words are twice as large as that group, floor(D/2)
/// of the mean D, within the limits that it costs at most 40 % more than K0 would for the mean length,
/// f(K) <= 1.4 f(K0), and K <= K0, and stays. A group may begin anywhere in a block; in blocks of twice its
/// size at most every second place cuts it apart. The buffers "chosen" (0 while measuring) and "measured"
/// (passes, sum of N, sum of D) are saved with the model, so that the same seed gives the same K, also when a
/// run is killed and resumed. Only while measuring does a training step wait for the device.
class ClusterCount : public Module {
 public:
  explicit ClusterCount(const AttentionConfig& config);

  bool is_automatic() const { return automatic_; }
  /// The largest K that may be asked for: how many centroids there are to be.
  std::int64_t most() const { return most_; }
  /// K for sequences of `length` words; with `training`, K may be chosen now.
  std::int64_t of(std::int64_t length, bool training);
  /// What a training pass found, while K is not chosen: words x [B, N, d], centroids [B or 1, K, d],
  /// assignment i32 [B, N] with K at padding, mask i32 [B, N] or undefined. It goes to absorb().
  void observe(const Tensor& x, const Tensor& centroids, const Tensor& assignment, const Tensor& mask,
               Context& context);
  /// Counts a pass: 1, N and D, [3].
  void absorb(std::span<const Tensor> values) override;

  /// The rule itself: from the mean length and the mean of D.
  static std::int64_t choose(double length, double effective, std::int64_t width);

 protected:
  void forget() override { known_ = 0; }

 private:
  std::int64_t width_, most_;
  bool automatic_ = false;
  std::atomic<std::int64_t> known_ = 0;  // K once it is known to be final; 0: look into the buffer
  Tensor chosen_, measured_;             // i32 [1], [3]
};

}  // namespace heed
