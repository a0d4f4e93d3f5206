#include "heed/models/encoder_classifier.h"

#include "heed/autograd/ops.h"

namespace heed {

EncoderClassifier::EncoderClassifier(const TransformerConfig& config)
    : EncoderClassifier(
          checked_config(config, "a classifier",
                         {{"source_vocabulary", config.source_vocabulary}, {"classes", config.classes}}),
          Initialiser(static_cast<std::uint64_t>(config.seed))) {}

EncoderClassifier::EncoderClassifier(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser), output_(config.width, config.classes, true, initialiser) {
  add_pooling(initialiser);
  add_module("output", output_);
  if (config.word_pairs == 0) return;
  pairs_ = std::make_unique<WordPairs>(config.word_pairs, config.classes, config.word_dropout);
  add_module("pairs", *pairs_);
}

Tensor EncoderClassifier::logits(const PaddedTokens& tokens, Context& context) {
  const Tensor deep = output_(pooled(hidden(tokens, context), tokens.mask));
  return pairs_ ? deep + (*pairs_)(tokens.ids, context) : deep;
}

Loss EncoderClassifier::loss(const ClassificationBatch& batch, double smoothing, Context& context) {
  const Tensor losses = cross_entropy(logits(batch.input, context), batch.labels, smoothing);
  return {sum(losses), batch.labels.count()};
}

}  // namespace heed
