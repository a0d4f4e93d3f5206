#pragma once

#include <mutex>

#include "heed/models/attention/attention.h"
#include "heed/models/initialise.h"

namespace heed {

/// What self-attention adds to its logits for the distance of two words, in place of vectors of positions.
///
/// AttentionConfig::alibi: -m_h |i - j| with m_h = 2^(-8 h / H), h = 1, ..., H (ALiBi: Press, Smith and Lewis 2022, arXiv
/// 2108.12409, section 3). There are no parameters.
/// AttentionConfig::relative: a learned number per head and bucket of distances (T5: Raffel et al. 2020, arXiv 1910.10683,
/// section 2.1): 32 buckets, half of them for keys behind the query unless it is causal; near distances have one each,
/// farther ones share, ever more, and from 128 on all are one. The table, "weight" [32, H], is this layer's own.
///
/// Any length is allowed.
class DistanceBias : public Module {
 public:
  /// Of an attention without them (AttentionConfig) it adds nothing, has no parameters and draws nothing.
  DistanceBias(const AttentionConfig& config, Initialiser& initialiser);

  bool active() const { return alibi_ || relative_; }
  bool has_parameters() const { return relative_; }
  /// Tells the kernel of the distances between `queries` queries and `keys` keys, of which the last stand side by side;
  /// dtype and device are those of `like`.
  void add_to(AttentionOptions& options, std::int64_t queries, std::int64_t keys, const Tensor& like);
  /// The same as a bias [1, H, N, M] whatever its kind, for those that regroup heads or queries.
  Tensor matrix(std::int64_t queries, std::int64_t keys, const Tensor& like);
  /// The matrix of the queries at positions i32 [G] among the keys 0, 1, ...: [1, H, G, M]. Of alibi alone.
  Tensor matrix_at(const Tensor& positions, std::int64_t keys, const Tensor& like);

  /// The bucket of a key that stands `ahead` = j - i of the query.
  static std::int32_t bucket(std::int64_t ahead, bool causal);

  Tensor weight;  ///< of relative: [32, H]

 private:
  /// m_h, [H].
  Tensor slopes(const Tensor& like);
  Tensor learned(std::int64_t queries, std::int64_t keys, const Tensor& like);

  bool alibi_, relative_, causal_;
  std::int64_t heads_;
  std::mutex mutex_;                     // several threads may compute with one model
  Tensor slopes_;                        // as last asked for
  Tensor buckets_;                       // i32 [N M], as last asked for
  std::int64_t queries_ = 0, keys_ = 0;  // of buckets_
};

}  // namespace heed
