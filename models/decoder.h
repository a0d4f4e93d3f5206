#pragma once

#include <memory>
#include <vector>

#include "heed/models/layer_attention.h"
#include "heed/models/residual.h"

namespace heed {

/// What one decoder layer remembers between decoding steps.
struct DecoderLayerCache {
  AttentionCache self, cross;
};

/// What a decoder remembers between decoding steps, one row for each hypothesis.
struct DecoderState {
  Tensor memory;                  ///< [R, M, d]; undefined without an encoder
  Tensor memory_mask;             ///< i32 [R, M]; undefined: all real
  std::vector<Tensor> of_source;  ///< what else a model keeps of the source, each [R, ...]
  std::vector<DecoderLayerCache> layers;
  std::int64_t position = 0;  ///< how many tokens each row has seen

  /// Keeps the rows `ids` (i32 [R']). With `same_memory` every row keeps the memory of its place, as when the
  /// hypotheses of one sentence change places, and only the history moves.
  void reorder(const Tensor& ids, bool same_memory = false);
};

/// Causal self-attention, cross-attention unless the configuration leaves it out, and feed-forward.
class DecoderLayer : public Module {
 public:
  /// `cross` is null without an encoder.
  DecoderLayer(const TransformerConfig& config, std::int64_t layer, LayerAttentions& self,
               LayerAttentions* cross, Initialiser& initialiser);
  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& memory, const Tensor& memory_mask,
                    Context& context);
  /// x [R, 1, d], the newest position of each hypothesis.
  Tensor step(const Tensor& x, DecoderLayerCache& cache, const DecoderState& state, Context& context);

 private:
  template <class Self, class Cross>
  Tensor run(const Tensor& x, Context& context, Self&& self, Cross&& cross);

  std::shared_ptr<Attention> self_attention_;
  Residual self_attention_norm_;
  std::shared_ptr<Attention> cross_attention_;  // null: this layer does not look at the memory
  std::unique_ptr<Residual> cross_attention_norm_;
  FeedForward feed_forward_;
  Residual feed_forward_norm_;
};

/// A stack of decoder layers (Vaswani et al. 2017, section 3.1), with a final norm in pre-norm models.
/// Without a memory it is the body of a language model.
class Decoder : public Module {
 public:
  Decoder(const TransformerConfig& config, bool has_memory, Initialiser& initialiser);
  /// x [B, T, d], mask i32 [B, T], memory [B, M, d], memory_mask i32 [B, M] (masks undefined: all real) ->
  /// [B, T, d].
  Tensor operator()(Tensor x, const Tensor& mask, const Tensor& memory, const Tensor& memory_mask,
                    Context& context);
  /// The state before the first step. A decoder without memory takes undefined tensors.
  DecoderState start(const Tensor& memory = {}, const Tensor& memory_mask = {}) const;
  /// One more position of every hypothesis: x [R, 1, d] -> [R, 1, d].
  Tensor step(Tensor x, DecoderState& state, Context& context);

 private:
  bool recompute_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;  // with share_layers "all" the same one, N times
  std::unique_ptr<LayerNorm> norm_;
};

}  // namespace heed
