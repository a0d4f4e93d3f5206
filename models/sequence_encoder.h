#pragma once

#include <memory>

#include "heed/models/layers.h"
#include "heed/models/loss.h"
#include "heed/models/positions.h"
#include "heed/models/transformer.h"

namespace heed {

/// Pools a sequence to one vector, following the released code of Fastformer (arXiv 2108.09084):
///
///   e_i = tanh(x_i W1 + b1) w2 + c2,    out = sum_i softmax(e)_i x_i
///
/// Parts "hidden" (W1, b1) and "score" (w2, c2), initialised N(0, 0.02^2). A sequence without real
/// tokens gives 0.
class AttentionPooling : public Module {
 public:
  AttentionPooling(std::int64_t width, Initialiser& initialiser);
  /// Maps x [B, N, d] with its mask (i32 [B, N], undefined = all real) to [B, d].
  Tensor operator()(const Tensor& x, const Tensor& mask) const;

 private:
  Part<Linear> hidden_, score_;
};

/// A convolution over neighbouring tokens with a residual connection, so that a model need not
/// learn from little data which positions are adjacent (the filters of Kim 2014, arXiv 1408.5882,
/// eq. 2):
///
///   x_i + act(W [x_{i-l}; ...; x_i; ...; x_{i+r}] + b),
///   l + 1 + r = local_width, l = floor((local_width - 1) / 2)
///
/// with zeros for padding and beyond both ends of the sequence. Parts "map" (W [d, local_width d],
/// b) and "norm".
class LocalLayer : public Module {
 public:
  LocalLayer(const TransformerConfig& config, Initialiser& initialiser);
  /// Maps x [B, N, d] with its mask i32 [B, N] (undefined: all real) to [B, N, d].
  Tensor operator()(const Tensor& x, const Tensor& mask, Context& context) const;

 private:
  std::int64_t neighbours_;
  Activation activation_;
  Part<Linear> map_;
  Part<Residual> norm_;
};

/// The common base of models that read whole sequences: token input, encoder, and pooling to one
/// vector per sequence. Models derive from it and add their head. Parts "embedding", "input"
/// (positions), "local" when `local_width` is set, "encoder", "pooling" when a model pools by
/// attention, and "pooler" where that is set. Reads `source_vocabulary`, `local_width`,
/// `encoder_layers`, `encoder_attention`, `pooling` and `pooler` of the configuration.
class SequenceEncoder : public Module {
 public:
  SequenceEncoder(const TransformerConfig& config, Initialiser& initialiser);
  /// Creates and registers the parameters of the configured pooling and pooler, whose output has
  /// this width (0: the model's). Without this call, pooled() has none of them.
  void add_pooling(Initialiser& initialiser, std::int64_t pooler_width = 0);
  /// Returns hidden states [B, N, d] of tokens i32 [B, N].
  virtual Tensor hidden(const PaddedTokens& tokens, Context& context) {
    return hidden(tokens, Tensor(), context);
  }
  /// Returns the hidden states of the embedded tokens plus `added` [B, N, d], unless that is
  /// undefined.
  Tensor hidden(const PaddedTokens& tokens, const Tensor& added, Context& context);
  /// Returns hidden states of vectors [B, N, d] from another source, with their mask (i32 [B, N],
  /// undefined: all real).
  Tensor encode(const Tensor& x, const Tensor& mask, Context& context) { return encoder_(x, mask, context); }
  /// Pools the real positions of each sequence to one vector [B, d]: their mean; their maximum per
  /// element with `pooling` "max"; a weighted mean with "attention" (AttentionPooling) and
  /// "weighted"; or the first or last one. A `pooler` then maps it to act(W x + b).
  Tensor pooled(const Tensor& hidden, const Tensor& mask) const;

  const TransformerConfig& config() const { return config_; }
  DType dtype() const { return embedding_.weight.dtype(); }
  Device device() const { return embedding_.weight.device(); }

 protected:
  const Embedding& embedding() const { return embedding_; }
  /// Treats vectors x [B, N, d] like token embeddings: scales them and adds positions and dropout.
  Tensor placed(const Tensor& x, Context& context) { return input_.from_vectors(x, 0, context); }

 private:
  TransformerConfig config_;
  Part<Embedding> embedding_;
  Part<TokenInput> input_;
  std::unique_ptr<LocalLayer> local_;  // null: none
  Part<Encoder> encoder_;
  std::unique_ptr<AttentionPooling> pooling_;  // null: mean, maximum or first
  std::unique_ptr<Linear> pooler_;             // null: none
};

/// Pools the real positions of x [B, N, d] to one vector [B, d], by the configuration's `pooling`:
/// "max", "first", "last", "weighted", or with a non-null `attention` its weighted mean, otherwise the mean.
Tensor pooled(std::string_view pooling, const AttentionPooling* attention, const Tensor& x,
              const Tensor& mask);
/// Returns the mean of x [B, N, d] over the positions where mask (i32 [B, N], undefined: all) is 1:
/// [B, d]. A sample without real positions gives 0.
Tensor mean_over_tokens(const Tensor& x, const Tensor& mask);
/// Returns the maximum per element over the positions where mask is 1; 0 for a sample without any.
Tensor max_over_tokens(const Tensor& x, const Tensor& mask);
/// Returns the first position where mask is 1; 0 for a sample without any.
Tensor first_real_token(const Tensor& x, const Tensor& mask);
/// Returns the last position where mask is 1; 0 for a sample without any.
Tensor last_real_token(const Tensor& x, const Tensor& mask);
/// Returns the mean with the weights 1, 2, ... from the first position where mask is 1; 0 for a sample
/// without any.
Tensor weighted_mean_over_tokens(const Tensor& x, const Tensor& mask);

}  // namespace heed
