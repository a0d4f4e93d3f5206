#pragma once

#include "heed/models/loss.h"
#include "heed/models/sequence_encoder.h"
#include "heed/models/word_pairs.h"

namespace heed {

/// A sequence encoder whose pooled vector a linear map, the part "output", turns into `classes` logits. Where the
/// configuration has `word_pairs`, the logits of the part "pairs" (WordPairs) are added.
class EncoderClassifier : public SequenceEncoder {
 public:
  explicit EncoderClassifier(const TransformerConfig& config);

  /// Class logits [B, classes] of tokens i32 [B, N].
  Tensor logits(const PaddedTokens& tokens, Context& context);
  /// Cross entropy summed over the samples; what the layers add is in the context.
  Loss loss(const ClassificationBatch& batch, double smoothing, Context& context);

 private:
  EncoderClassifier(const TransformerConfig& config, Initialiser initialiser);

  Linear output_;
  std::unique_ptr<WordPairs> pairs_;  // null: none
};

}  // namespace heed
