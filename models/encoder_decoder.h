#pragma once

#include "heed/models/decoder.h"
#include "heed/models/encoder.h"
#include "heed/models/loss.h"
#include "heed/models/pointer.h"
#include "heed/models/token_input.h"

namespace heed {

/// The Transformer of Vaswani et al. 2017 (arXiv 1706.03762) for translation and other sequence-to-sequence
/// tasks. Its parts are "source_embedding" and "target_embedding" (one "embedding" when all are tied),
/// "source", "target" (positions), "encoder", "decoder", "output" unless that is the target embedding, and "pointer"
/// where config.pointer says that it may copy tokens of the source.
class EncoderDecoder : public Module {
 public:
  explicit EncoderDecoder(const TransformerConfig& config);

  /// The memory [B, M, d] of source tokens i32 [B, M] with their mask (undefined: all real).
  Tensor encode(const PaddedTokens& source, Context& context);
  /// Teacher forcing: hidden states [B, T, d] for target tokens i32 [B, T]; each sees those up to itself.
  Tensor decode(const PaddedTokens& target, const Tensor& memory, const Tensor& memory_mask,
                Context& context);
  /// The logarithm of the probability of every token [B, T, V] for hidden states [B, T, d].
  Tensor log_probabilities(const Tensor& hidden, const Tensor& memory, const PaddedTokens& source,
                           Context& context) const;
  /// Label-smoothed cross entropy over the real target tokens; what the layers add is in the context.
  Loss loss(const TranslationBatch& batch, double smoothing, Context& context);

  /// The state before the first decoding step.
  DecoderState start(const Tensor& memory, const PaddedTokens& source) const;
  /// Logits [R, V] of what follows, after reading one more token of every hypothesis: tokens i32 [R]. With a pointer
  /// they are logarithms of probabilities.
  Tensor step(const Tensor& tokens, DecoderState& state, Context& context);
  /// How many tokens a target may have, its begin mark included; 0: no limit.
  std::int64_t target_limit() const;

  const TransformerConfig& config() const { return config_; }
  DType dtype() const { return target_embedding_->weight.dtype(); }
  Device device() const { return target_embedding_->weight.device(); }

 private:
  EncoderDecoder(const TransformerConfig& config, Initialiser initialiser);
  const Embedding& source_embedding() const {
    return source_embedding_ ? *source_embedding_ : *target_embedding_;
  }

  TransformerConfig config_;
  std::unique_ptr<Embedding> source_embedding_;  // null when all embeddings are tied
  std::unique_ptr<Embedding> target_embedding_;
  TokenInput source_, target_;
  Encoder encoder_;
  Decoder decoder_;
  VocabularyHead output_;
  std::unique_ptr<Pointer> pointer_;  // null: nothing is copied
};

/// True when a stack or its positions cannot go beyond config.max_length.
bool is_length_limited(const TransformerConfig& config, const AttentionChoices& choices);

}  // namespace heed
