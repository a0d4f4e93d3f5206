#include "heed/models/encoder_classifier.h"

#include "heed/autograd/ops.h"

namespace heed {
namespace {

const TransformerConfig& checked(const TransformerConfig& config) {
  check_config(config);
  check(config.source_vocabulary > 0 && config.classes > 0,
        "a classifier needs source_vocabulary and classes, got ", config.source_vocabulary, " and ",
        config.classes);
  return config;
}

}  // namespace

Tensor mean_over_tokens(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return mean(x, 1);
  // As a product [B, 1, N] [B, N, d], which needs no masked copy of x.
  const Tensor real = cast(mask, x.dtype());
  const Tensor weights = real / clamp(sum(real, 1, true), 1, static_cast<double>(x.size(1)));
  return squeeze(matmul(unsqueeze(weights, 1), x), 1);
}

EncoderClassifier::EncoderClassifier(const TransformerConfig& config)
    : EncoderClassifier(checked(config), Initialiser(static_cast<std::uint64_t>(config.seed))) {}

EncoderClassifier::EncoderClassifier(const TransformerConfig& config, Initialiser initialiser)
    : config_(config),
      embedding_(config.source_vocabulary, config.width, embedding_deviation(config), initialiser),
      input_(config, embedding_, initialiser),
      encoder_(config, initialiser),
      output_(config.width, config.classes, true, initialiser) {
  add_module("embedding", embedding_);
  add_module("input", input_);
  add_module("encoder", encoder_);
  if (config.pooling == "attention") {
    pooling_ = std::make_unique<AttentionPooling>(config.width, initialiser);
    add_module("pooling", *pooling_);
  }
  add_module("output", output_);
}

Tensor EncoderClassifier::logits(const PaddedTokens& tokens, Context& context) {
  const Tensor x = encoder_(input_(tokens.ids, 0, context), tokens.mask, context);
  return output_(pooling_ ? (*pooling_)(x, tokens.mask) : mean_over_tokens(x, tokens.mask));
}

Loss EncoderClassifier::loss(const ClassificationBatch& batch, double smoothing, Context& context) {
  const Tensor losses = cross_entropy(logits(batch.input, context), batch.labels, smoothing);
  return {sum(losses), batch.labels.count()};
}

}  // namespace heed
