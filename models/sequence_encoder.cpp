#include "heed/models/sequence_encoder.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed {

AttentionPooling::AttentionPooling(std::int64_t width, Initialiser& initialiser)
    : hidden_(*this, "hidden", width, width, true, initialiser),
      score_(*this, "score", width, 1, true, initialiser) {
  for (Linear* part : {&hidden_, &score_})
    part->weight = parameter(initialiser.normal(part->weight.shape(), 0.02));
}

Tensor AttentionPooling::operator()(const Tensor& x, const Tensor& mask) const {
  const Tensor logits = transpose(score_(tanh(hidden_(x))), 1, 2);  // [B, 1, N]
  const Tensor weights = mask.defined() ? masked_softmax(logits, unsqueeze(mask, 1)) : softmax(logits, -1);
  return squeeze(matmul(weights, x), 1);
}

LocalLayer::LocalLayer(const TransformerConfig& config, Initialiser& initialiser)
    : neighbours_(config.local_width),
      activation_(find_activation(config.activation)),
      map_(*this, "map", config.local_width * config.width, config.width, true, initialiser),
      norm_(*this, "norm", config) {}

Tensor LocalLayer::operator()(const Tensor& x, const Tensor& mask, Context& context) const {
  const std::int64_t left = (neighbours_ - 1) / 2, right = neighbours_ - 1 - left, length = x.size(1);
  const auto filtered = [&](const Tensor& input) {
    const Tensor real = mask.defined() ? input * unsqueeze(cast(mask, input.dtype()), 2) : input;
    const Tensor wide = pad(real, 1, left, right);
    std::vector<Tensor> windows;
    for (std::int64_t i = 0; i < neighbours_; ++i) windows.push_back(slice(wide, 1, i, i + length));
    return apply(activation_, map_(concat(windows, -1)));
  };
  return norm_.around(x, context, filtered).sum();
}

SequenceEncoder::SequenceEncoder(const TransformerConfig& config, Initialiser& initialiser)
    : config_(config),
      embedding_(*this, "embedding", config.source_vocabulary, config.width, embedding_deviation(config),
                 initialiser),
      input_(*this, "input", config, embedding_, initialiser),
      local_(config.local_width > 0 ? std::make_unique<Part<LocalLayer>>(*this, "local", config, initialiser)
                                    : nullptr),
      encoder_(*this, "encoder", config, initialiser) {}

void SequenceEncoder::add_pooling(Initialiser& initialiser, std::int64_t pooler_width) {
  if (config_.pooling == "attention")
    pooling_ = std::make_unique<Part<AttentionPooling>>(*this, "pooling", config_.width, initialiser);
  if (config_.pooler != "none")
    pooler_ = std::make_unique<Part<Linear>>(
        *this, "pooler", config_.width, pooler_width > 0 ? pooler_width : config_.width, true, initialiser);
}

Tensor SequenceEncoder::hidden(const PaddedTokens& tokens, const Tensor& added, Context& context) {
  Tensor x = drop_tokens(input_(tokens.ids, 0, context, tokens.types), config_.word_dropout, context);
  if (added.defined()) x = x + added;
  if (local_) x = (*local_)(x, tokens.mask, context);
  return encode(x, tokens.mask, context);
}

Tensor SequenceEncoder::pooled(const Tensor& hidden, const Tensor& mask) const {
  const Tensor pool = heed::pooled(config_.pooling, pooling_.get(), hidden, mask);
  if (!pooler_ || config_.pooler == "identity") return pooler_ ? (*pooler_)(pool) : pool;
  const UnaryOp activation = config_.pooler == "tanh"   ? UnaryOp::tanh
                             : config_.pooler == "relu" ? UnaryOp::relu
                                                        : UnaryOp::gelu;
  return unary(activation, (*pooler_)(pool));
}

Tensor pooled(std::string_view pooling, const AttentionPooling* attention, const Tensor& x,
              const Tensor& mask) {
  if (pooling == "max") return max_over_tokens(x, mask);
  if (pooling == "first") return first_real_token(x, mask);
  if (pooling == "last") return last_real_token(x, mask);
  if (pooling == "weighted") return weighted_mean_over_tokens(x, mask);
  return attention ? (*attention)(x, mask) : mean_over_tokens(x, mask);
}

Tensor max_over_tokens(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return max(x, 1);
  const Tensor real = unsqueeze(mask, 2);               // [B, N, 1]
  const Tensor largest = max(where(real, x, -1e4), 1);  // -1e4 is within the range of f16
  return largest * max(cast(real, x.dtype()), 1);
}

/// i32 [B, N]: 1, 2, ... from the first real position of each sample on; 0 where there is none.
static Tensor places_of_tokens(const Tensor& x, const Tensor& mask) {
  const Tensor places = unsqueeze(Tensor::arange(x.size(1), DType::i32, x.device()) + 1.0, 0);
  return mask.defined() ? (places - unsqueeze(argmax(mask, 1), 1)) * mask
                        : contiguous(expand(places, {x.size(0), x.size(1)}));
}

Tensor last_real_token(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return select(x, 1, -1);
  const Tensor last = unsqueeze(argmax(places_of_tokens(x, mask), 1), 1);  // [B, 1]
  return squeeze(gather_rows(x, last), 1) * max(cast(unsqueeze(mask, 2), x.dtype()), 1);
}

Tensor weighted_mean_over_tokens(const Tensor& x, const Tensor& mask) {
  const Tensor places = cast(places_of_tokens(x, mask), x.dtype());
  const Tensor weights = places / maximum(sum(places, 1, true), 1);
  return squeeze(matmul(unsqueeze(weights, 1), x), 1);
}

Tensor first_real_token(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return select(x, 1, 0);
  const Tensor first = unsqueeze(argmax(mask, 1), 1);  // [B, 1]
  return squeeze(gather_rows(x, first), 1) * max(cast(unsqueeze(mask, 2), x.dtype()), 1);
}

Tensor mean_over_tokens(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return mean(x, 1);
  // A product [B, 1, N] [B, N, d] needs no masked copy of x.
  const Tensor real = cast(mask, x.dtype());
  const Tensor weights = real / clamp(sum(real, 1, true), 1, static_cast<double>(x.size(1)));
  return squeeze(matmul(unsqueeze(weights, 1), x), 1);
}

}  // namespace heed
