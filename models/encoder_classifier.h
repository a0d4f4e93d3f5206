#pragma once

#include <memory>

#include "heed/models/attention_pooling.h"
#include "heed/models/encoder.h"
#include "heed/models/loss.h"
#include "heed/models/token_input.h"

namespace heed {

/// An encoder, one vector for all real tokens of its output (their mean, or with `pooling` "attention" a
/// weighted mean, see AttentionPooling), and a linear map to `classes` logits. It reads
/// `source_vocabulary`, `encoder_layers`, `encoder_attention`, `pooling` and `classes` of the configuration.
/// Its parts are "embedding", "input" (positions), "encoder", "pooling" where it has one, and "output".
class EncoderClassifier : public Module {
 public:
  explicit EncoderClassifier(const TransformerConfig& config);

  /// Class logits [B, classes] of tokens i32 [B, N].
  Tensor logits(const PaddedTokens& tokens, Context& context);
  /// Cross entropy summed over the samples; what the layers add is in the context.
  Loss loss(const ClassificationBatch& batch, double smoothing, Context& context);

  const TransformerConfig& config() const { return config_; }
  DType dtype() const { return embedding_.weight.dtype(); }
  Device device() const { return embedding_.weight.device(); }

 private:
  EncoderClassifier(const TransformerConfig& config, Initialiser initialiser);

  TransformerConfig config_;
  Embedding embedding_;
  TokenInput input_;
  Encoder encoder_;
  std::unique_ptr<AttentionPooling> pooling_;  // null: the mean
  Linear output_;
};

/// The mean of x [B, N, d] over the positions where mask (i32 [B, N], undefined: all) is 1: [B, d]. A sample
/// that has none gives 0.
Tensor mean_over_tokens(const Tensor& x, const Tensor& mask);

}  // namespace heed
