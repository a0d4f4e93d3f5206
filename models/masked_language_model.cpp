#include "heed/models/masked_language_model.h"

#include "heed/autograd/ops.h"

namespace heed {
namespace {

const TransformerConfig& checked(const TransformerConfig& config) {
  check_config(config);
  check(config.source_vocabulary > 0, "a masked language model needs source_vocabulary, got ",
        config.source_vocabulary);
  return config;
}

}  // namespace

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config)
    : MaskedLanguageModel(checked(config), Initialiser(static_cast<std::uint64_t>(config.seed))) {}

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config, Initialiser initialiser)
    : config_(config),
      embedding_(config.source_vocabulary, config.width, embedding_deviation(config), initialiser),
      input_(config, embedding_, initialiser),
      encoder_(config, initialiser) {
  add_module("embedding", embedding_);
  add_module("input", input_);
  add_module("encoder", encoder_);
  if (config.tie_embeddings == "none") {
    output_ = std::make_unique<Linear>(config.width, config.source_vocabulary, false, initialiser);
    add_module("output", *output_);
  }
  add_parameter("output_bias", output_bias_, Tensor::zeros({config.source_vocabulary}));
}

Tensor MaskedLanguageModel::hidden(const PaddedTokens& tokens, Context& context) {
  return encoder_(input_(tokens.ids, 0, context), tokens.mask, context);
}

Tensor MaskedLanguageModel::logits(const Tensor& hidden) const {
  return linear(hidden, output_weight(), output_bias_);
}

Loss MaskedLanguageModel::loss(const MaskedBatch& batch, double smoothing, Context& context) {
  return token_loss(hidden(batch.input, context), output_weight(), output_bias_, batch.targets, smoothing);
}

}  // namespace heed
