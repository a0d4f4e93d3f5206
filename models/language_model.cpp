#include "heed/models/language_model.h"

#include <algorithm>
#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {

LanguageModel::LanguageModel(const TransformerConfig& config)
    : LanguageModel(
          checked_config(config, "a language model", {{"target_vocabulary", config.target_vocabulary}}),
          Initialiser(static_cast<std::uint64_t>(config.seed))) {}

LanguageModel::LanguageModel(const TransformerConfig& config, Initialiser initialiser)
    : config_(config),
      embedding_(*this, "embedding", config.target_vocabulary, config.width, embedding_deviation(config),
                 initialiser),
      input_(*this, "input", config, embedding_, initialiser),
      decoder_(*this, "decoder", config, false, initialiser),
      output_(*this, "output", config, embedding_, initialiser) {}

Tensor LanguageModel::hidden(const PaddedTokens& tokens, Context& context) {
  return decoder_(input_(tokens.ids, 0, context), tokens.mask, {}, {}, context);
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

static void check_options(const MaskingOptions& options) {
  check(options.share > 0 && options.share <= 1, "masking: the share must be above 0 and at most 1, is ",
        options.share);
  check(options.mask >= 0 && options.random >= 0 && options.mask + options.random <= 1,
        "masking: the probabilities of the mask (", options.mask, ") and of a random token (", options.random,
        ") must not be negative, and at most 1 together");
  check(!options.ordinary.empty() && std::is_sorted(options.ordinary.begin(), options.ordinary.end()) &&
            options.ordinary.front() >= 0 && options.ordinary.back() < options.vocabulary,
        "masking: the ordinary tokens must be ids of the vocabulary of ", options.vocabulary,
        " in ascending order, at least one; got ", options.ordinary.size());
  check(options.mask_token >= 0 && options.mask_token < options.vocabulary, "masking: the mask token ",
        options.mask_token, " is outside the vocabulary of ", options.vocabulary);
}

/// The positions of a sequence to guess, in ascending order: those with the smallest random words.
static std::vector<std::size_t> chosen_places(const Tokens& tokens, const MaskingOptions& options,
                                              const RandomKey& key) {
  std::vector<std::pair<std::uint32_t, std::size_t>> drawn;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (std::binary_search(options.ordinary.begin(), options.ordinary.end(), tokens[i]))
      drawn.emplace_back(random_word(key, 3 * i), i);
  const auto wanted =
      static_cast<std::size_t>(std::llround(options.share * static_cast<double>(drawn.size())));
  const std::size_t count = std::min(std::max<std::size_t>(wanted, 1), drawn.size());
  std::sort(drawn.begin(), drawn.end());
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < count; ++i) places.push_back(drawn[i].second);
  std::sort(places.begin(), places.end());
  return places;
}

/// Returns the replacement of a token that must be guessed.
static std::int32_t hidden_token(std::int32_t token, std::size_t place, const MaskingOptions& options,
                                 const RandomKey& key) {
  const double chance = unit_interval(random_word(key, 3 * place + 1));
  if (chance < options.mask) return options.mask_token;
  if (chance >= options.mask + options.random) return token;
  return options.ordinary[below(random_word(key, 3 * place + 2), options.ordinary.size())];
}

MaskedBatch make_masked_batch(std::span<const Tokens> sequences, const MaskingOptions& options,
                              const RandomKey& key, Device device) {
  check_options(options);
  std::vector<Tokens> inputs(sequences.begin(), sequences.end());
  std::size_t length = 1;
  for (const Tokens& sequence : sequences) {
    length = std::max(length, sequence.size());
    for (const std::int32_t token : sequence)
      check(token >= 0 && token < options.vocabulary, "masking: the token ", token,
            " is outside the vocabulary of ", options.vocabulary);
  }
  Tokens targets, rows;
  for (std::size_t b = 0; b < inputs.size(); ++b) {
    const RandomKey own{key.seed, key.step, key.op + static_cast<std::uint32_t>(b)};
    for (const std::size_t place : chosen_places(sequences[b], options, own)) {
      targets.push_back(sequences[b][place]);
      rows.push_back(static_cast<std::int32_t>(b * length + place));
      inputs[b][place] = hidden_token(targets.back(), place, options, own);
    }
  }
  check(!targets.empty(), "masking: the batch has no token to guess");
  const auto count = static_cast<std::int64_t>(targets.size());
  return {pad_tokens(inputs, device),
          {Tensor::from(targets, {count}, device), Tensor::from(rows, {count}, device), count}};
}

namespace {

const TransformerConfig& checked_masked(const TransformerConfig& config) {
  check(!config.output_bias, "the output map of a masked language model has a bias anyway: omit output_bias");
  return checked_config(config, "a masked language model", {{"source_vocabulary", config.source_vocabulary}});
}

}  // namespace

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config)
    : MaskedLanguageModel(checked_masked(config), Initialiser(static_cast<std::uint64_t>(config.seed))) {}

MaskedLanguageModel::MaskedLanguageModel(const TransformerConfig& config, Initialiser initialiser)
    : SequenceEncoder(config, initialiser),
      output_(*this, "output", config, embedding(), initialiser),
      activation_(find_activation(config.activation)) {
  add_parameter("output_bias", output_.bias, Initialiser::constant({config.source_vocabulary}, 0));
  if (!config.output_transform) return;
  transform_ =
      std::make_unique<Part<Linear>>(*this, "transform", config.width, config.width, true, initialiser);
  transform_norm_ = std::make_unique<Part<Norm>>(*this, "transform_norm", config);
}

Tensor MaskedLanguageModel::transformed(const Tensor& hidden) const {
  return transform_ ? (*transform_norm_)(apply(activation_, (*transform_)(hidden))) : hidden;
}

Loss MaskedLanguageModel::loss(const MaskedBatch& batch, double smoothing, Context& context) {
  return output_.loss(transformed(hidden(batch.input, context)), batch.targets, smoothing);
}

}  // namespace heed
