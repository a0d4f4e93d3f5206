#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/config.h"
#include "heed/models/layers.h"
#include "heed/models/module.h"

namespace heed {

class ShortConvolution;  // attention/shared/token_sums.h

/// Builds the attentions of a stack from the configuration, layer by layer. It keeps attentions
/// that later layers share.
class LayerAttentions {
 public:
  LayerAttentions(const AttentionChoices& choices, const TransformerConfig& config, bool causal, bool cross)
      : choices_(choices), config_(config), causal_(causal), cross_(cross) {}

  /// Returns the attention of `layer`, or null where the choice is "none". Call it for the layers
  /// in order. With share_layers "attention" every layer gets that of the first.
  std::shared_ptr<Attention> make(std::int64_t layer, Initialiser& initialiser);
  /// Returns the capabilities of the choice for `layer`; none for "none".
  Capabilities capabilities(std::int64_t layer) const;
  bool causal() const { return causal_; }

 private:
  const AttentionChoices& choices_;
  const TransformerConfig& config_;
  bool causal_, cross_;
  std::map<std::string, std::shared_ptr<Attention>> first_;  // the first attention of each variant
};

/// The residual stream through a stack of sub-layers: x + dropout(added). Before a pre-norm
/// sub-layer, the addition is fused with the normalisation.
class ResidualStream {
 public:
  // a stream with nothing to add
  ResidualStream(Tensor x) : x_(std::move(x)) {}
  ResidualStream(Tensor x, Tensor added, double p, const RandomKey& key)
      : x_(std::move(x)), added_(std::move(added)), p_(p), key_(key) {}

  /// The sum and its normalisation.
  NormedSum add_and_normalize(const Norm& norm) const {
    return added_.defined() ? norm(added_, x_, p_, key_) : NormedSum{x_, norm(x_)};
  }
  Tensor sum() const { return added_.defined() ? dropout_add(added_, x_, p_, key_) : x_; }

 private:
  Tensor x_, added_;  // added_: undefined: nothing to add
  double p_ = 0;
  RandomKey key_;
};

/// The frame of every Transformer sub-layer: dropout, the residual connection and a normalisation,
/// whose parameters "weight" and "bias" belong to this module. Post-norm: LN(x + dropout(f(x)))
/// (Vaswani et al. 2017, section 3.1); pre-norm: x + dropout(f(LN(x))) (arXiv 2002.04745); sandwich:
/// x + dropout(LN'(f(LN(x)))), where LN' is the part "after" (arXiv 2105.13290, section 2.4).
class Residual : public Norm {
 public:
  /// Without a norm of its own unless it `normalises`.
  explicit Residual(const TransformerConfig& config, bool normalises = true)
      : Norm(normalises ? find_norm_kind(config.norm_kind) : NormKind::none, config.width, config.epsilon),
        pre_(config.norm != "post"),
        dropout_(config.dropout) {
    if (config.norm == "sandwich") after_ = std::make_unique<Part<Norm>>(*this, "after", config);
  }

  template <class Sublayer>
  ResidualStream around(const ResidualStream& stream, Context& context, Sublayer&& sublayer) const {
    const NormedSum input = pre_ ? stream.add_and_normalize(*this) : NormedSum{stream.sum(), {}};
    Tensor added = sublayer(pre_ ? input.normalised : input.sum);
    if (after_) added = (*after_)(added);
    const double p = context.training ? dropout_ : 0;
    const RandomKey key = p > 0 ? context.random.next() : RandomKey();
    const ResidualStream after(input.sum, added, p, key);
    return pre_ ? after : ResidualStream(after.add_and_normalize(*this).normalised);
  }

 private:
  bool pre_;
  double dropout_;
  std::unique_ptr<Norm> after_;  // null: none
};

/// A layer of a stack: x [B, N, d], memory [B, M, d] (undefined without one) -> [B, N, d].
using LayerFunction = std::function<Tensor(const Tensor& x, const Tensor& memory, Context& context)>;

/// Runs a layer and keeps only its inputs for backward, which runs it again with the same random
/// numbers (arXiv 1604.06174). This saves memory and costs time. The layer must still exist then.
/// Throws an Error for a layer that leaves auxiliary losses or tensors for later layers in the
/// context, since these would get no gradient.
Tensor recomputed_layer(const LayerFunction& layer, const Tensor& x, const Tensor& memory, Context& context);

/// The state of one decoder layer between decoding steps.
struct DecoderLayerCache {
  AttentionCache self, cross;
  Tensor canon_attention, canon_feed_forward;  ///< the last inputs of Canon layers [R, canon - 1, d]
};

/// The state of a decoder between decoding steps: R rows, one per hypothesis, and S rows of memory,
/// each of which serves R / S consecutive hypotheses.
struct DecoderState {
  Tensor memory;                  ///< [S, M, d]; undefined without an encoder
  Tensor memory_mask;             ///< i32 [S, M]; undefined: all real
  std::vector<Tensor> of_source;  ///< other tensors kept of the source, each [S, ...]
  std::vector<DecoderLayerCache> layers;
  std::int64_t position = 0;  ///< tokens read by each row so far

  /// Continues with the given hypotheses and the given rows of the memory. Every memory row must
  /// serve the same number of hypotheses, so their number is a multiple of the number of memory
  /// rows.
  void reorder(std::span<const std::int32_t> rows, std::span<const std::int32_t> memory_rows);
  /// Continues with the given hypotheses when each has its own memory row, or there is no memory.
  void reorder(std::span<const std::int32_t> rows) { reorder(rows, rows); }
};

/// A layer of an encoder or decoder: self-attention ("attention" in an encoder, "self_attention" in
/// a decoder, where it is causal), "cross_attention" where there is a memory and the configuration
/// does not omit it, and "feed_forward". Each is within a residual connection, such as
/// "feed_forward_norm". "canon_attention" and "canon_feed_forward" are before the first and the last.
class TransformerLayer : public Module {
 public:
  /// `cross` is null without a memory.
  TransformerLayer(const TransformerConfig& config, std::int64_t layer, LayerAttentions& self,
                   LayerAttentions* cross, Initialiser& initialiser);
  ResidualStream operator()(const ResidualStream& x, const Tensor& mask, const Tensor& memory,
                            const Tensor& memory_mask, Context& context);
  /// Computes the newest positions x [R, n, d] of each hypothesis.
  ResidualStream step(const ResidualStream& x, DecoderLayerCache& cache, const DecoderState& state,
                      Context& context);

 private:
  template <class Self, class Cross>
  ResidualStream run(const ResidualStream& x, const Tensor& mask, DecoderLayerCache* cache, Context& context,
                     Self&& self, Cross&& cross);

  Tensor attend_to_self(const Tensor& x, AttentionCache& cache, Context& context);

  bool one_pass_;  // a step may read several positions at once
  std::shared_ptr<Attention> self_attention_;
  Residual self_attention_norm_;
  std::shared_ptr<Attention> cross_attention_;  // null: this layer does not see the memory
  std::unique_ptr<Residual> cross_attention_norm_;
  FeedForward feed_forward_;
  Residual feed_forward_norm_;
  std::shared_ptr<ShortConvolution> canon_attention_, canon_feed_forward_;  // null: none
};

/// A stack of layers (Vaswani et al. 2017, section 3.1), with a final norm unless norms come after.
class Stack : public Module {
 protected:
  Stack(const TransformerConfig& config, std::int64_t layers, LayerAttentions self,
        std::optional<LayerAttentions> cross, Initialiser& initialiser);
  Tensor run(Tensor x, const Tensor& mask, const Tensor& memory, const Tensor& memory_mask, Context& context);
  /// Returns the output of the stack: the sum, with the final norm if there is one.
  Tensor output(const ResidualStream& stream) const;

  std::vector<std::shared_ptr<TransformerLayer>> layers_;  // with share_layers "all" the same one N times

 private:
  bool recompute_;
  std::unique_ptr<Norm> norm_;
};

class Encoder : public Stack {
 public:
  Encoder(const TransformerConfig& config, Initialiser& initialiser);
  /// Maps x [B, N, d] with its mask i32 [B, N] (undefined: all real) to [B, N, d].
  Tensor operator()(Tensor x, const Tensor& mask, Context& context) {
    return run(std::move(x), mask, {}, {}, context);
  }
};

/// A causal stack; without a memory, the body of a language model.
class Decoder : public Stack {
 public:
  Decoder(const TransformerConfig& config, bool has_memory, Initialiser& initialiser);
  /// Maps x [B, T, d] to [B, T, d]; mask i32 [B, T], memory [B, M, d], memory_mask i32 [B, M]
  /// (masks undefined: all real).
  Tensor operator()(Tensor x, const Tensor& mask, const Tensor& memory, const Tensor& memory_mask,
                    Context& context) {
    return run(std::move(x), mask, memory, memory_mask, context);
  }
  /// Returns the state before the first step. A decoder without memory takes undefined tensors.
  DecoderState start(const Tensor& memory = {}, const Tensor& memory_mask = {}) const;
  /// Computes the next positions of every hypothesis: x [R, n, d] -> [R, n, d].
  Tensor step(Tensor x, DecoderState& state, Context& context);
};

}  // namespace heed
