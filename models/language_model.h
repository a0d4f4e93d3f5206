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
  /// Logits [R, V] of what follows, after reading one more token of every row, i32 [R], or several, i32 [R,
  /// n], which are read in one pass.
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

/// How tokens are hidden from a model that is to guess them: BERT's rule (Devlin et al., arXiv 1810.04805,
/// section 3.1 and appendix A.1).
struct MaskingOptions {
  double share = 0.15;  ///< of a sequence's tokens that are to be guessed, at least one of each sequence
  double mask = 0.8;    ///< probability that such a token is replaced by the mask token
  double random = 0.1;  ///< that it is replaced by any token; else it stays as it is
  std::int32_t mask_token = 0;
  std::int32_t vocabulary = 0;  ///< number of ids
  /// Ids in ascending order; all others are special tokens: never to be guessed, never put in.
  std::vector<std::int32_t> ordinary = {};
};

/// What a model reads and what it is to guess.
struct MaskedBatch {
  PaddedTokens input;
  Targets targets;  ///< the original tokens at the chosen places
};

/// Chooses round(share * ordinary tokens) places of each sequence, at least one, and hides them; sequences
/// without an ordinary token have none. A pure function of its arguments: sequence b draws from the stream of
/// `key` with b added to its op number. Throws an Error for options out of range, for an id outside the
/// vocabulary, and when there is nothing to guess at all.
MaskedBatch make_masked_batch(std::span<const Tokens> sequences, const MaskingOptions& options,
                              const RandomKey& key, Device device = {});

/// A sequence encoder that guesses hidden tokens from both sides (Devlin et al., arXiv 1810.04805, task 1).
/// The output map is the embedding unless tie_embeddings is "none" (then it is the part "output"), with a
/// bias of its own, the parameter "output_bias". With the setting output_transform hidden states go through
/// LN(activation(W x + b)) before it, the parts "transform" and "transform_norm".
class MaskedLanguageModel : public SequenceEncoder {
 public:
  explicit MaskedLanguageModel(const TransformerConfig& config);

  /// Vocabulary logits [..., V] of hidden states [..., d].
  Tensor logits(const Tensor& hidden) const;
  /// The masked-token loss: cross entropy of the hidden tokens alone. What the layers add is in the context.
  Loss loss(const MaskedBatch& batch, double smoothing, Context& context);

 private:
  MaskedLanguageModel(const TransformerConfig& config, Initialiser initialiser);

  Tensor transformed(const Tensor& hidden) const;

  VocabularyHead output_;
  Activation activation_;
  std::unique_ptr<Linear> transform_;  // null: none
  std::unique_ptr<Norm> transform_norm_;
};

}  // namespace heed
