#include "heed/models/masked_language_model.h"

namespace heed {
namespace {

const TransformerConfig& checked_masked(const TransformerConfig& config) {
  check_config(config);
  check(config.source_vocabulary > 0, "a masked language model needs source_vocabulary, got ",
        config.source_vocabulary);
  return config;
}

}  // namespace

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config)
    : MaskedLanguageModel(checked_masked(config), Initialiser(static_cast<std::uint64_t>(config.seed))) {}

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser), output_(config, embedding(), initialiser) {
  add_module("output", output_);
  add_parameter("output_bias", output_.bias, Initialiser::constant({config.source_vocabulary}, 0));
}

Tensor MaskedLanguageModel::logits(const Tensor& hidden) const {
  return output_(hidden);
}

Loss MaskedLanguageModel::loss(const MaskedBatch& batch, double smoothing, Context& context) {
  return output_.loss(hidden(batch.input, context), batch.targets, smoothing);
}

}  // namespace heed
