#pragma once

#include "heed/models/attention/attention.h"
#include "heed/models/positions.h"

namespace heed {

/// Attention in which queries of one sequence meet the keys and values of all tokens, of it or of a memory:
/// q, k, v = X Wq, Y Wk, Y Wv with positions. Decoding keeps k and v.
class ProjectedAttention : public Attention {
 public:
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override;

 protected:
  /// With `key_heads` heads of keys and values. `softmaxes`, 1 or 2, share the queries and keys of a head, and
  /// rotary positions turn the part of each by itself.
  ProjectedAttention(const AttentionConfig& config, std::int64_t key_heads, std::int64_t softmaxes);

  Tensor forward(const AttentionInput& input, Context& context) override;
  /// The output for inputs x [B, N, d] with their queries [B, N, H dh], and keys and values [B, M, G dh]; in
  /// self-attention the last query is at the last key.
  virtual Tensor attend(const Tensor& x, const Tensor& queries, const Tensor& keys, const Tensor& values,
                        const Tensor& key_mask, Context& context) = 0;

  std::int64_t key_heads_;  // G
  Projections w_;
  Rotary rotary_;
  DistanceBias distances_;
};

}  // namespace heed
