#pragma once

#include "heed/models/encoder.h"
#include "heed/models/loss.h"
#include "heed/models/masked_tokens.h"
#include "heed/models/token_input.h"

namespace heed {

/// An encoder that guesses hidden tokens from both sides (Devlin et al., arXiv 1810.04805, task 1). It reads
/// `source_vocabulary`, `encoder_layers` and `encoder_attention` of the configuration; the output map is the
/// embedding unless tie_embeddings is "none", with a bias of its own. Its parts are "embedding", "input"
/// (positions), "encoder", the parameter "output_bias", and "output" unless it is tied.
class MaskedLanguageModel : public Module {
 public:
  explicit MaskedLanguageModel(const TransformerConfig& config);

  /// Hidden states [B, N, d] of tokens i32 [B, N].
  Tensor hidden(const PaddedTokens& tokens, Context& context);
  /// Vocabulary logits [..., V] of hidden states [..., d].
  Tensor logits(const Tensor& hidden) const;
  /// The masked-token loss: cross entropy of the hidden tokens alone; what the layers add is in the context.
  Loss loss(const MaskedBatch& batch, double smoothing, Context& context);

  const TransformerConfig& config() const { return config_; }
  DType dtype() const { return embedding_.weight.dtype(); }
  Device device() const { return embedding_.weight.device(); }

 private:
  MaskedLanguageModel(const TransformerConfig& config, Initialiser initialiser);
  const Tensor& output_weight() const { return output_ ? output_->weight : embedding_.weight; }

  TransformerConfig config_;
  Embedding embedding_;
  TokenInput input_;
  Encoder encoder_;
  std::unique_ptr<Linear> output_;  // null when tied to the embedding
  Tensor output_bias_;
};

}  // namespace heed
