#include "heed/models/language_model.h"

#include "heed/autograd/ops.h"

namespace heed {

LanguageModel::LanguageModel(const TransformerConfig& config)
    : LanguageModel(
          checked_config(config, "a language model", {{"target_vocabulary", config.target_vocabulary}}),
          Initialiser(static_cast<std::uint64_t>(config.seed))) {}

LanguageModel::LanguageModel(const TransformerConfig& config, Initialiser initialiser)
    : config_(config),
      embedding_(config.target_vocabulary, config.width, embedding_deviation(config), initialiser),
      input_(config, embedding_, initialiser),
      decoder_(config, false, initialiser),
      output_(config, embedding_, initialiser) {
  add_module("embedding", embedding_);
  add_module("input", input_);
  add_module("decoder", decoder_);
  add_module("output", output_);
}

Tensor LanguageModel::hidden(const PaddedTokens& tokens, Context& context) {
  return decoder_(input_(tokens.ids, 0, context), tokens.mask, {}, {}, context);
}

Tensor LanguageModel::logits(const Tensor& hidden) const {
  return output_(hidden);
}

Loss LanguageModel::loss(const LanguageModelBatch& batch, double smoothing, Context& context) {
  return output_.loss(hidden(batch.input, context), batch.targets, smoothing);
}

Tensor LanguageModel::step(const Tensor& tokens, DecoderState& state, Context& context) {
  check(tokens.defined() && tokens.count() > 0,
        "language model: a step needs a token for each text, got none");
  const Tensor x = input_(tokens.rank() == 1 ? unsqueeze(tokens, 1) : tokens, state.position, context);
  return logits(select(decoder_.step(x, state, context), 1, -1));
}

}  // namespace heed
