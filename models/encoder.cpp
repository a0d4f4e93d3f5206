#include "heed/models/encoder.h"

#include <string>

#include "heed/models/recompute.h"

namespace heed {

EncoderLayer::EncoderLayer(const TransformerConfig& config, std::int64_t layer, LayerAttentions& attentions,
                           Initialiser& initialiser)
    : attention_(attentions.make(layer, initialiser)),
      attention_norm_(config),
      feed_forward_(config.width, config.feed_forward, activation_of(config.activation),
                    config.activation_dropout, initialiser),
      feed_forward_norm_(config) {
  add_module("attention", *attention_);
  add_module("attention_norm", attention_norm_);
  add_module("feed_forward", feed_forward_);
  add_module("feed_forward_norm", feed_forward_norm_);
}

Stream EncoderLayer::operator()(const Stream& x, const Tensor& mask, Context& context) {
  const Stream attended = attention_norm_.around(x, context, [&](const Tensor& input) {
    return (*attention_)({input, mask, {}, {}}, context);
  });
  return feed_forward_norm_.around(attended, context,
                                   [&](const Tensor& input) { return feed_forward_(input, context); });
}

Encoder::Encoder(const TransformerConfig& config, Initialiser& initialiser)
    : recompute_(config.recompute_layers) {
  LayerAttentions attentions(config.encoder_attention, config, false, false);
  for (std::int64_t i = 0; i < config.encoder_layers; ++i) {
    const bool shared = i > 0 && config.share_layers == "all";
    layers_.push_back(shared ? layers_.front()
                             : std::make_shared<EncoderLayer>(config, i, attentions, initialiser));
    add_module("layers." + std::to_string(i), *layers_.back());
  }
  if (config.norm == "pre") {
    norm_ = std::make_unique<Norm>(norm_kind_of(config.norm_kind), config.width, config.epsilon);
    add_module("norm", *norm_);
  }
}

Tensor Encoder::operator()(Tensor x, const Tensor& mask, Context& context) {
  context.handed_on.clear();
  Stream stream(std::move(x));
  for (const auto& layer : layers_) {
    const auto run = [&layer = *layer, mask](const Tensor& input, const Tensor&, Context& inner) {
      return layer(input, mask, inner).sum();
    };
    stream = recompute_ ? recomputed_layer(run, stream.sum(), {}, context) : (*layer)(stream, mask, context);
  }
  return norm_ ? stream.normed_by(*norm_).normalised : stream.sum();
}

}  // namespace heed
