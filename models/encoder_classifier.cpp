#include "heed/models/encoder_classifier.h"

#include "heed/autograd/ops.h"

namespace heed {
namespace {

const TransformerConfig& checked_classifier(const TransformerConfig& config) {
  check_config(config);
  check(config.source_vocabulary > 0 && config.classes > 0,
        "a classifier needs source_vocabulary and classes, got ", config.source_vocabulary, " and ",
        config.classes);
  return config;
}

}  // namespace

EncoderClassifier::EncoderClassifier(const TransformerConfig& config)
    : EncoderClassifier(checked_classifier(config), Initialiser(static_cast<std::uint64_t>(config.seed))) {}

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
