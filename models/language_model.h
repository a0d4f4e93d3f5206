#pragma once

#include "heed/models/decoder.h"
#include "heed/models/loss.h"
#include "heed/models/token_input.h"

namespace heed {

/// A decoder-only Transformer: each position predicts the next token. It reads `target_vocabulary`,
/// `decoder_layers` and `decoder_attention` of the configuration; the output map is tied unless
/// tie_embeddings is "none". Its parts are "embedding", "input" (positions), "decoder", and "output" unless
/// it is tied.
class LanguageModel : public Module {
 public:
  explicit LanguageModel(const TransformerConfig& config);

  /// Hidden states [B, T, d] of tokens i32 [B, T], each of which sees those up to itself.
  Tensor hidden(const PaddedTokens& tokens, Context& context);
  /// Vocabulary logits [..., V] of hidden states [..., d].
  Tensor logits(const Tensor& hidden) const;
  /// Cross entropy over the real target tokens; what the layers add is in the context.
  Loss loss(const LanguageModelBatch& batch, double smoothing, Context& context);

  DecoderState start() const { return decoder_.start(); }
  /// Logits [R, V] of what follows, after reading one more token of every row, i32 [R], or several, i32 [R, n], which
  /// are read in one pass.
  Tensor step(const Tensor& tokens, DecoderState& state, Context& context);

  const TransformerConfig& config() const { return config_; }
  DType dtype() const { return embedding_.weight.dtype(); }
  Device device() const { return embedding_.weight.device(); }

 private:
  LanguageModel(const TransformerConfig& config, Initialiser initialiser);

  TransformerConfig config_;
  Embedding embedding_;
  TokenInput input_;
  Decoder decoder_;
  VocabularyHead output_;
};

}  // namespace heed
