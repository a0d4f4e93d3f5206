#pragma once

#include <memory>
#include <span>
#include <vector>

#include "heed/models/layer_attention.h"
#include "heed/models/residual.h"

namespace heed {

/// What one decoder layer remembers between decoding steps.
struct DecoderLayerCache {
  AttentionCache self, cross;
};

/// What a decoder remembers between decoding steps: R rows, one for each hypothesis, and S of the memory, each of which
/// serves R / S hypotheses that stand one after the other.
struct DecoderState {
  Tensor memory;                  ///< [S, M, d]; undefined without an encoder
  Tensor memory_mask;             ///< i32 [S, M]; undefined: all real
  std::vector<Tensor> of_source;  ///< what else a model keeps of the source, each [S, ...]
  std::vector<DecoderLayerCache> layers;
  std::int64_t position = 0;  ///< how many tokens each row has seen

  /// Goes on with the given hypotheses, and with the given rows of the memory. Each memory row has to serve as many
  /// hypotheses as every other: their number is a multiple of that of the memory's.
  void reorder(std::span<const std::int32_t> rows, std::span<const std::int32_t> memory_rows);
  /// The same where every hypothesis has a memory of its own, or none has one.
  void reorder(std::span<const std::int32_t> rows) { reorder(rows, rows); }
};

/// Causal self-attention, cross-attention unless the configuration leaves it out, and feed-forward.
class DecoderLayer : public Module {
 public:
  /// `cross` is null without an encoder.
  DecoderLayer(const TransformerConfig& config, std::int64_t layer, LayerAttentions& self,
               LayerAttentions* cross, Initialiser& initialiser);
  Stream operator()(const Stream& x, const Tensor& mask, const Tensor& memory, const Tensor& memory_mask,
                    Context& context);
  /// x [R, n, d], the newest positions of each hypothesis.
  Stream step(const Stream& x, DecoderLayerCache& cache, const DecoderState& state, Context& context);

 private:
  template <class Self, class Cross>
  Stream run(const Stream& x, Context& context, Self&& self, Cross&& cross);

  Tensor attend_to_self(const Tensor& x, AttentionCache& cache, Context& context);

  bool one_pass_;  // several positions may be read at a time
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
  /// The next positions of every hypothesis: x [R, n, d] -> [R, n, d].
  Tensor step(Tensor x, DecoderState& state, Context& context);

 private:
  bool recompute_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;  // with share_layers "all" the same one, N times
  std::unique_ptr<Norm> norm_;
};

}  // namespace heed
