#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/core/random.h"
#include "heed/models/loss.h"
#include "heed/models/positions.h"
#include "heed/models/sequence_encoder.h"
#include "heed/models/transformer.h"

namespace heed {

/// A decoder-only Transformer: each position predicts the next token. It reads `target_vocabulary`,
/// `decoder_layers` and `decoder_attention` of the configuration. The output map is tied to the
/// embedding unless tie_embeddings is "none". Its parts are "embedding", "input" (positions),
/// "decoder", and "output" when not tied.
class LanguageModel : public Module {
 public:
  explicit LanguageModel(const TransformerConfig& config);

  /// Hidden states [B, T, d] of tokens i32 [B, T]; each position sees itself and earlier ones.
  Tensor hidden(const PaddedTokens& tokens, Context& context);
  /// Vocabulary logits [..., V] of hidden states [..., d].
  Tensor logits(const Tensor& hidden) const { return output_(hidden); }
  /// Returns the cross entropy over the real target tokens. Auxiliary losses of layers are in the
  /// context.
  Loss loss(const LanguageModelBatch& batch, double smoothing, Context& context);
  /// Returns the cross entropy of targets whose hidden states [B, T, d] are given.
  Loss loss(const Tensor& hidden, const Targets& targets, double smoothing) const {
    return output_.loss(hidden, targets, smoothing);
  }

  DecoderState start() const { return decoder_.start(); }
  /// Reads one more token per row, i32 [R], or several in one pass, i32 [R, n], and returns the
  /// logits [R, V] of the next one.
  Tensor step(const Tensor& tokens, DecoderState& state, Context& context);

  const TransformerConfig& config() const { return config_; }
  DType dtype() const { return embedding_.weight.dtype(); }
  Device device() const { return embedding_.weight.device(); }

 private:
  LanguageModel(const TransformerConfig& config, Initialiser initialiser);

  TransformerConfig config_;
  Part<Embedding> embedding_;
  Part<TokenInput> input_;
  Part<Decoder> decoder_;
  Part<VocabularyHead> output_;
};

/// The rule by which tokens are masked for a model that must guess them: BERT's (Devlin et al.,
/// arXiv 1810.04805, section 3.1 and appendix A.1).
struct MaskingOptions {
  double share = 0.15;  ///< share of a sequence's tokens to guess, at least one per sequence
  double mask = 0.8;    ///< probability that such a token is replaced by the mask token
  double random = 0.1;  ///< probability of replacing it by a random token; else it is kept
  std::int32_t mask_token = 0;
  std::int32_t vocabulary = 0;  ///< number of ids
  /// Ids in ascending order. All others are special tokens, which are neither guessed nor inserted.
  std::vector<std::int32_t> ordinary = {};
};

/// A batch with masked tokens and the tokens that a model must guess.
struct MaskedBatch {
  PaddedTokens input;
  Targets targets;  ///< the original tokens at the chosen positions
};

/// Chooses round(share * ordinary tokens) positions of each sequence, at least one, and masks them;
/// sequences without ordinary tokens are left alone. A pure function of its arguments: sequence b
/// draws from the stream of `key` with b added to its op number. Throws an Error for options out of
/// range, for an id outside the vocabulary, and when no sequence has a token to guess.
MaskedBatch make_masked_batch(std::span<const Tokens> sequences, const MaskingOptions& options,
                              const RandomKey& key, Device device = {});

/// A sequence encoder that guesses masked tokens from both sides (Devlin et al., arXiv 1810.04805,
/// task 1). The output map is the embedding, or the part "output" when tie_embeddings is "none",
/// plus a bias, the parameter "output_bias". With the setting output_transform, hidden states first
/// go through LN(activation(W x + b)), the parts "transform" and "transform_norm".
class MaskedLanguageModel : public SequenceEncoder {
 public:
  explicit MaskedLanguageModel(const TransformerConfig& config);

  /// Vocabulary logits [..., V] of hidden states [..., d].
  Tensor logits(const Tensor& hidden) const { return output_(transformed(hidden)); }
  /// Returns the cross entropy of the masked tokens only. Auxiliary losses of layers are in the
  /// context.
  Loss loss(const MaskedBatch& batch, double smoothing, Context& context);

 private:
  MaskedLanguageModel(const TransformerConfig& config, Initialiser initialiser);

  Tensor transformed(const Tensor& hidden) const;

  Part<VocabularyHead> output_;
  Activation activation_;
  std::unique_ptr<Linear> transform_;  // null: none
  std::unique_ptr<Norm> transform_norm_;
};

}  // namespace heed
