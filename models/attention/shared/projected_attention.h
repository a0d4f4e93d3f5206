#pragma once

#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/sink_and_gate.h"
#include "heed/models/positions.h"

namespace heed {

/// Attention of the queries of a sequence to the keys and values of the same sequence or of a
/// memory: q, k, v = X Wq, Y Wk, Y Wv with positions. Decoding keeps k and v, in a causal window only
/// those that later queries see.
class ProjectedAttention : public Attention {
 public:
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override;

 protected:
  struct Kind {
    std::int64_t key_heads = 0;  ///< heads of keys and values; 0: as many as of queries
    /// 1 or 2; two share the queries and keys of a head, and rotary positions rotate each part
    /// separately.
    std::int64_t softmaxes = 1;
    std::optional<bool> output_bias = {};  ///< of Wo; nothing: as the others
    ProjectionOptions::Taken options = {};
    std::int64_t window = 0;  ///< keys at a distance below it are seen; 0: all
  };
  ProjectedAttention(const AttentionConfig& config, const Kind& kind);

  Tensor forward(const AttentionInput& input, Context& context) override;
  /// The output for inputs x [B, N, d] with their queries [B, N, H dh], and keys and values [B, M,
  /// G dh]; in self-attention the last query is at the last key.
  virtual Tensor attend(const Tensor& x, const Tensor& queries, const Tensor& keys, const Tensor& values,
                        const Tensor& key_mask, Context& context) = 0;

  std::int64_t key_heads_;  // G
  std::int64_t window_;     // 0: none
  Projections w_;
  ProjectionOptions changed_;
  Rotary rotary_;
  DistanceBias distances_;
};

}  // namespace heed
