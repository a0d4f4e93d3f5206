#pragma once

#include "heed/models/loss.h"
#include "heed/models/masked_tokens.h"
#include "heed/models/sequence_encoder.h"

namespace heed {

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
