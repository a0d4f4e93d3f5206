#pragma once

#include <memory>
#include <vector>

#include "heed/models/layer_attention.h"
#include "heed/models/residual.h"

namespace heed {

/// Self-attention and feed-forward, each within a residual connection.
class EncoderLayer : public Module {
 public:
  EncoderLayer(const TransformerConfig& config, std::int64_t layer, LayerAttentions& attentions,
               Initialiser& initialiser);
  Stream operator()(const Stream& x, const Tensor& mask, Context& context);

 private:
  std::shared_ptr<Attention> attention_;
  Residual attention_norm_;
  FeedForward feed_forward_;
  Residual feed_forward_norm_;
};

/// A stack of encoder layers (Vaswani et al. 2017, section 3.1), with a final norm in pre-norm models.
class Encoder : public Module {
 public:
  Encoder(const TransformerConfig& config, Initialiser& initialiser);
  /// x [B, N, d], mask i32 [B, N] (undefined: all real) -> [B, N, d].
  Tensor operator()(Tensor x, const Tensor& mask, Context& context);

 private:
  bool recompute_;
  std::vector<std::shared_ptr<EncoderLayer>> layers_;  // with share_layers "all" the same one, N times
  std::unique_ptr<Norm> norm_;
};

}  // namespace heed
