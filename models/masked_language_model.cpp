#include "heed/models/masked_language_model.h"

namespace heed {
namespace {

const TransformerConfig& checked_masked(const TransformerConfig& config) {
  check(!config.output_bias,
        "the output map of a masked language model has a bias in any case: leave out output_bias");
  return checked_config(config, "a masked language model", {{"source_vocabulary", config.source_vocabulary}});
}

}  // namespace

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config)
    : MaskedLanguageModel(checked_masked(config), Initialiser(static_cast<std::uint64_t>(config.seed))) {}

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser),
      output_(config, embedding(), initialiser),
      activation_(activation_of(config.activation)) {
  add_module("output", output_);
  add_parameter("output_bias", output_.bias, Initialiser::constant({config.source_vocabulary}, 0));
  if (!config.output_transform) return;
  transform_ = std::make_unique<Linear>(config.width, config.width, true, initialiser);
  transform_norm_ = std::make_unique<Norm>(norm_kind_of(config.norm_kind), config.width, config.epsilon);
  add_module("transform", *transform_);
  add_module("transform_norm", *transform_norm_);
}

Tensor MaskedLanguageModel::transformed(const Tensor& hidden) const {
  return transform_ ? (*transform_norm_)(apply(activation_, (*transform_)(hidden))) : hidden;
}

Tensor MaskedLanguageModel::logits(const Tensor& hidden) const {
  return output_(transformed(hidden));
}

Loss MaskedLanguageModel::loss(const MaskedBatch& batch, double smoothing, Context& context) {
  return output_.loss(transformed(hidden(batch.input, context)), batch.targets, smoothing);
}

}  // namespace heed
