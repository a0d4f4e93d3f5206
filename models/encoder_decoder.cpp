#include "heed/models/encoder_decoder.h"

#include <algorithm>

#include "heed/autograd/ops.h"

namespace heed {

constexpr double least = 1e-20;          // added to a probability before taking its logarithm
constexpr double surely_generated = 50;  // the gate's logit when there is nothing to copy

/// Half types would lose small probabilities.
static Tensor precise(const Tensor& x) {
  return x.dtype() == DType::f64 ? x : cast(x, DType::f32);
}

/// log(exp(a) + exp(b)).
static Tensor log_of_sum(const Tensor& a, const Tensor& b) {
  const Tensor larger = maximum(a, b);
  return larger + log(exp(a - larger) + exp(b - larger));
}

Pointer::Pointer(const TransformerConfig& config, Initialiser& initialiser)
    : embedding_scale_(embedding_scale(config)),
      query_(*this, "query", config.width, config.width, true, initialiser),
      key_(*this, "key", 2 * config.width, config.width, true, initialiser),
      gate_(*this, "gate", config.width, 1, true, initialiser) {}

PointerSource Pointer::source(const Tensor& memory, const PaddedTokens& tokens,
                              const Embedding& embedding) const {
  // The first token has no predecessor: -1 gives a row of zeros, as for padding.
  const Tensor before = slice(pad(tokens.ids, 1, 1, 0, -1), 1, 0, tokens.ids.size(1));
  return {key_(concat({memory, embedding(before) * embedding_scale_}, -1)), tokens.ids, tokens.mask};
}

Tensor Pointer::weights(const Tensor& hidden, const PointerSource& source, Context& context) const {
  AttentionOptions options;
  options.key_mask = source.mask;
  const Tensor query = unsqueeze(query_(hidden), 1), key = unsqueeze(source.keys, 1);
  const Tensor found = attention_weights(query, key, options);  // [B, 1, T, M]
  if (context.capture) context.capture->entries.push_back({path() + ".cross", "weights", found.detach()});
  return precise(squeeze(found, 1));
}

Tensor Pointer::gate(const Tensor& hidden, const Tensor& copied) const {
  return where(greater(sum(copied, -1, true), 0.5), precise(gate_(hidden)), surely_generated);
}

Tensor Pointer::log_probabilities(const Tensor& hidden, const Tensor& logits, const PointerSource& source,
                                  Context& context) const {
  const Tensor copied = weights(hidden, source, context);  // [B, T, M]
  const Tensor ids = contiguous(expand(unsqueeze(maximum(source.ids, 0), 1), copied.shape()));
  const Tensor copies = scatter_add(copied, 2, ids, logits.size(-1)), z = gate(hidden, copied);
  return log_of_sum(log_softmax(precise(logits)) - softplus(-z), log(copies + least) - softplus(z));
}

Loss Pointer::loss(const Tensor& hidden, const VocabularyHead& head, const PointerSource& source,
                   const Targets& targets, double smoothing, Context& context) const {
  const Tensor copied = weights(hidden, source, context);
  const Tensor ids = contiguous(expand(unsqueeze(source.ids, 1), copied.shape()));
  const Tensor states = target_rows(hidden, targets),
               places = target_rows(copied, targets);                                    // [count, d or M]
  const Tensor is_target = equal(target_rows(ids, targets), unsqueeze(targets.ids, 1));  // [count, M]
  const Tensor copies = sum(where(is_target, places, 0.0), 1);                           // [count]
  const Tensor z = squeeze(gate(states, places), 1), logits = precise(head(states));
  const Tensor generated = -cross_entropy(logits, targets.ids);  // log P_vocabulary of the targets
  const Tensor found = log_of_sum(generated - softplus(-z), log(copies + least) - softplus(z));
  Tensor losses = -found;
  if (smoothing > 0)  // the smoothing term of P_vocabulary's cross entropy
    losses = (1 - smoothing) * (generated - found) + cross_entropy(logits, targets.ids, smoothing);
  return {sum(losses), targets.count};
}

namespace {

const TransformerConfig& checked_encoder_decoder(const TransformerConfig& config) {
  checked_config(
      config, "an encoder-decoder",
      {{"source_vocabulary", config.source_vocabulary}, {"target_vocabulary", config.target_vocabulary}});
  check(config.tie_embeddings != "all" || config.source_vocabulary == config.target_vocabulary,
        "tying all embeddings needs one vocabulary, but the source has ", config.source_vocabulary,
        " tokens and the target ", config.target_vocabulary);
  check(!config.pointer || config.source_vocabulary == config.target_vocabulary,
        "a pointer copies tokens, which needs one vocabulary, but the source has ", config.source_vocabulary,
        " tokens and the target ", config.target_vocabulary);
  return config;
}

}  // namespace

bool is_length_limited(const TransformerConfig& config, const AttentionChoices& choices) {
  const auto limited = [](const AttentionChoice& choice) {
    return choice.name != "none" && !attention_capabilities(choice.name, choice.options).any_length;
  };
  return config.positions == "learned" || std::any_of(choices.begin(), choices.end(), limited);
}

EncoderDecoder::EncoderDecoder(const TransformerConfig& config)
    : EncoderDecoder(checked_encoder_decoder(config), Initialiser(static_cast<std::uint64_t>(config.seed))) {}

EncoderDecoder::EncoderDecoder(const TransformerConfig& config, Initialiser initialiser)
    : config_(config),
      source_embedding_(config.tie_embeddings == "all"
                            ? nullptr
                            : std::make_unique<Part<Embedding>>(*this, "source_embedding",
                                                                config.source_vocabulary, config.width,
                                                                embedding_deviation(config), initialiser)),
      target_embedding_(*this, source_embedding_ ? "target_embedding" : "embedding", config.target_vocabulary,
                        config.width, embedding_deviation(config), initialiser),
      source_(*this, "source", config, source_embedding(), initialiser),
      target_(*this, "target", config, target_embedding_, initialiser),
      encoder_(*this, "encoder", config, initialiser),
      decoder_(*this, "decoder", config, true, initialiser),
      output_(*this, "output", config, target_embedding_, initialiser),
      pointer_(config.pointer ? std::make_unique<Part<Pointer>>(*this, "pointer", config, initialiser)
                              : nullptr) {}

Tensor EncoderDecoder::encode(const PaddedTokens& source, Context& context) {
  return encoder_(source_(source.ids, 0, context), source.mask, context);
}

Tensor EncoderDecoder::decode(const PaddedTokens& target, const Tensor& memory, const Tensor& memory_mask,
                              Context& context) {
  return decoder_(target_(target.ids, 0, context), target.mask, memory, memory_mask, context);
}

Tensor EncoderDecoder::log_probabilities(const Tensor& hidden, const Tensor& memory,
                                         const PaddedTokens& source, Context& context) const {
  const Tensor logits = output_(hidden);
  if (!pointer_) return log_softmax(logits);
  return pointer_->log_probabilities(hidden, logits, pointer_->source(memory, source, source_embedding()),
                                     context);
}

Loss EncoderDecoder::loss(const TranslationBatch& batch, double smoothing, Context& context) {
  const Tensor memory = encode(batch.source, context);
  const Tensor hidden = decode(batch.target, memory, batch.source.mask, context);
  if (!pointer_) return output_.loss(hidden, batch.targets, smoothing);
  return pointer_->loss(hidden, output_, pointer_->source(memory, batch.source, source_embedding()),
                        batch.targets, smoothing, context);
}

DecoderState EncoderDecoder::start(const Tensor& memory, const PaddedTokens& source) const {
  DecoderState state = decoder_.start(memory, source.mask);
  if (pointer_) {
    PointerSource copied = pointer_->source(memory, source, source_embedding());
    state.of_source = {std::move(copied.keys), std::move(copied.ids)};
  }
  return state;
}

Tensor EncoderDecoder::step(const Tensor& tokens, DecoderState& state, Context& context) {
  check(tokens.defined() && tokens.count() > 0, "decoder: a step needs a token for each row, got none");
  const Tensor x = target_(unsqueeze(tokens, 1), state.position, context);
  const Tensor hidden = decoder_.step(x, state, context);
  if (!pointer_) return squeeze(output_(hidden), 1);
  const PointerSource source{state.of_source[0], state.of_source[1], state.memory_mask};
  const Tensor by_source = reshape(hidden, {state.memory.size(0), -1, hidden.size(2)});  // [S, R / S, d]
  return reshape(pointer_->log_probabilities(by_source, output_(by_source), source, context),
                 {tokens.size(0), -1});
}

const Embedding& EncoderDecoder::source_embedding() const {
  return source_embedding_ ? *source_embedding_ : static_cast<const Embedding&>(target_embedding_);
}

std::int64_t EncoderDecoder::target_limit() const {
  return is_length_limited(config_, config_.decoder_attention) ? config_.max_length : 0;
}

}  // namespace heed
