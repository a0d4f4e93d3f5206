#include "heed/models/transformer.h"

#include <string>

#include "heed/autograd/autograd.h"
#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/models/attention/shared/token_sums.h"
#include "heed/models/positions.h"

namespace heed {

std::shared_ptr<Attention> LayerAttentions::make(std::int64_t layer, Initialiser& initialiser) {
  const AttentionChoice& choice = choice_for(choices_, layer);
  if (cross_ && choice.name == "none") return nullptr;
  const Capabilities can = attention_capabilities(choice.name, choice.options);
  check(!cross_ || !can.cross || can.cross_by_step, "attention '", choice.name,
        "' cannot serve as a decoder's cross-attention: ", can.reason);
  const auto residual = choice.options.values().find("value_residual");
  check(config_.share_layers == "none" || residual == choice.options.values().end() ||
            residual->second == Options::Value(false),
        "share_layers=", config_.share_layers,
        " leaves no layer whose values differ from those of the first "
        "('value_residual')");
  std::shared_ptr<Attention>& first = first_[choice.name];
  if (first && config_.share_layers == "attention") return first;
  AttentionConfig attention;
  attention.width = config_.width;
  attention.heads = choice.heads ? choice.heads : config_.heads;
  if (config_.head_width * attention.heads != config_.width) attention.head_width = config_.head_width;
  attention.dropout = config_.attention_dropout;
  attention.bias = config_.attention_bias;
  attention.causal = causal_;
  attention.cross = cross_;
  attention.rotary = config_.positions == "rotary" && !cross_;
  attention.angles = rotary_angles(config_);
  attention.alibi = config_.positions == "alibi" && !cross_;
  attention.interleaved_slopes = config_.alibi_slopes == "interleaved";
  attention.relative = config_.positions == "relative" && !cross_;
  attention.max_length = config_.max_length;
  attention.layer = layer;
  attention.first = first.get();
  attention.options = choice.options;
  attention.epsilon = config_.epsilon;
  attention.seed = initialiser.next_seed();
  std::shared_ptr<Attention> made = make_attention(choice.name, attention);
  if (!first) first = made;
  return made;
}

Capabilities LayerAttentions::capabilities(std::int64_t layer) const {
  const AttentionChoice& choice = choice_for(choices_, layer);
  return choice.name == "none" ? Capabilities() : attention_capabilities(choice.name, choice.options);
}

Tensor recomputed_layer(const LayerFunction& layer, const Tensor& x, const Tensor& memory, Context& context) {
  const auto segment = [layer, &context, training = context.training](std::span<const Tensor> inputs,
                                                                      Random& random) {
    // Observations count in the first pass only, which is not recorded. The second pass, in backward, may
    // outlive the context.
    const bool first = !recording();
    std::vector<Observation> again;
    Context own;
    own.training = training;
    own.random = random;
    own.observations = first ? context.observations : &again;
    const Tensor out = layer(inputs[0], inputs.size() > 1 ? inputs[1] : Tensor(), own);
    check(own.losses.empty() && own.shared_tensors.empty(),
          "recompute_layers does not support layers with auxiliary losses, or layers that pass tensors to "
          "later ones; set it to false");
    random = own.random;
    return out;
  };
  std::vector<Tensor> inputs{x};
  if (memory.defined()) inputs.push_back(memory);
  return recompute_in_backward(segment, std::move(inputs), context.random);
}

void DecoderState::reorder(std::span<const std::int32_t> rows, std::span<const std::int32_t> memory_rows) {
  check(memory_rows.size() > 0 && rows.size() % memory_rows.size() == 0, "reorder: ", rows.size(),
        " hypotheses cannot share ", memory_rows.size(), " rows of a memory evenly");
  const RowOrder order(rows), memory_order(memory_rows);
  for (DecoderLayerCache& layer : layers) {
    layer.self.reorder(order, memory_order);
    layer.cross.reorder(order, memory_order);
    for (Tensor* held : {&layer.canon_attention, &layer.canon_feed_forward})
      if (held->defined()) *held = order.of(std::move(*held));
  }
  if (memory.defined()) memory = memory_order.of(std::move(memory));
  if (memory_mask.defined()) memory_mask = memory_order.of(std::move(memory_mask));
  for (Tensor& kept : of_source) kept = memory_order.of(std::move(kept));
}

TransformerLayer::TransformerLayer(const TransformerConfig& config, std::int64_t layer, LayerAttentions& self,
                                   LayerAttentions* cross, Initialiser& initialiser)
    : one_pass_(self.capabilities(layer).strictly_causal),
      self_attention_(self.make(layer, initialiser)),
      self_attention_norm_(config, config.first_norm || layer > 0 || config.norm == "post"),
      feed_forward_(config, initialiser),
      feed_forward_norm_(config) {
  const std::string name = self.causal() ? "self_attention" : "attention";
  add_module(name, *self_attention_);
  add_module(name + "_norm", self_attention_norm_);
  if (cross) cross_attention_ = cross->make(layer, initialiser);
  if (cross_attention_) {
    cross_attention_norm_ = std::make_unique<Residual>(config);
    add_module("cross_attention", *cross_attention_);
    add_module("cross_attention_norm", *cross_attention_norm_);
  }
  add_module("feed_forward", feed_forward_);
  add_module("feed_forward_norm", feed_forward_norm_);
  if (config.canon == 0) return;
  for (auto& [canon, place] :
       {std::pair(&canon_attention_, "canon_attention"), {&canon_feed_forward_, "canon_feed_forward"}}) {
    *canon = std::make_shared<ShortConvolution>(config.canon, config.width, false, initialiser);
    add_module(place, **canon);
  }
}

/// x after a Canon layer (null: none); `before` is that of a step, null: the sequence is whole.
static Tensor with_canon(const std::shared_ptr<ShortConvolution>& canon, const Tensor& x, const Tensor& mask,
                         Tensor* before) {
  return canon ? x + (*canon)(without_padding(x, mask), before) : x;
}

template <class Self, class Cross>
ResidualStream TransformerLayer::run(const ResidualStream& x, const Tensor& mask, DecoderLayerCache* cache,
                                     Context& context, Self&& self, Cross&& cross) {
  ResidualStream attended = self_attention_norm_.around(x, context, [&](const Tensor& input) {
    return self(with_canon(canon_attention_, input, mask, cache ? &cache->canon_attention : nullptr));
  });
  if (cross_attention_) attended = cross_attention_norm_->around(attended, context, cross);
  return feed_forward_norm_.around(attended, context, [&](const Tensor& input) {
    return feed_forward_(
        with_canon(canon_feed_forward_, input, mask, cache ? &cache->canon_feed_forward : nullptr), context);
  });
}

ResidualStream TransformerLayer::operator()(const ResidualStream& x, const Tensor& mask, const Tensor& memory,
                                            const Tensor& memory_mask, Context& context) {
  return run(
      x, mask, nullptr, context,
      [&](const Tensor& input) {
        return (*self_attention_)({input, mask}, context);
      },
      [&](const Tensor& input) {
        return (*cross_attention_)({input, mask, memory, memory_mask}, context);
      });
}

/// When later tokens change what a position sees, decoding is defined on the text so far, so every position
/// is a separate step.
Tensor TransformerLayer::attend_to_self(const Tensor& x, AttentionCache& cache, Context& context) {
  if (one_pass_ || x.size(1) == 1) return self_attention_->step({x}, cache, context);
  std::vector<Tensor> outputs;
  for (std::int64_t t = 0; t < x.size(1); ++t)
    outputs.push_back(self_attention_->step({slice(x, 1, t, t + 1)}, cache, context));
  return concat(outputs, 1);
}

ResidualStream TransformerLayer::step(const ResidualStream& x, DecoderLayerCache& cache,
                                      const DecoderState& state, Context& context) {
  return run(
      x, {}, &cache, context, [&](const Tensor& input) { return attend_to_self(input, cache.self, context); },
      [&](const Tensor& input) {
        return cross_attention_->step({input, {}, state.memory, state.memory_mask}, cache.cross, context);
      });
}

Stack::Stack(const TransformerConfig& config, std::int64_t layers, LayerAttentions self,
             std::optional<LayerAttentions> cross, Initialiser& initialiser)
    : recompute_(config.recompute_layers) {
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool shared = i > 0 && config.share_layers == "all";
    layers_.push_back(
        shared ? layers_.front()
               : std::make_shared<TransformerLayer>(config, i, self, cross ? &*cross : nullptr, initialiser));
    add_module("layers." + std::to_string(i), *layers_.back());
  }
  if (config.norm != "post") norm_ = std::make_unique<Part<Norm>>(*this, "norm", config);
}

Tensor Stack::run(Tensor x, const Tensor& mask, const Tensor& memory, const Tensor& memory_mask,
                  Context& context) {
  context.shared_tensors.clear();
  ResidualStream stream(std::move(x));
  for (const auto& layer : layers_) {
    const auto run = [&layer = *layer, mask, memory_mask](const Tensor& input, const Tensor& seen,
                                                          Context& inner) {
      return layer(input, mask, seen, memory_mask, inner).sum();
    };
    stream = recompute_ ? recomputed_layer(run, stream.sum(), memory, context)
                        : (*layer)(stream, mask, memory, memory_mask, context);
  }
  return output(stream);
}

Tensor Stack::output(const ResidualStream& stream) const {
  return norm_ ? stream.add_and_normalize(*norm_).normalised : stream.sum();
}

Encoder::Encoder(const TransformerConfig& config, Initialiser& initialiser)
    : Stack(config, config.encoder_layers, LayerAttentions(config.encoder_attention, config, false, false),
            {}, initialiser) {}

Decoder::Decoder(const TransformerConfig& config, bool has_memory, Initialiser& initialiser)
    : Stack(config, config.decoder_layers, LayerAttentions(config.decoder_attention, config, true, false),
            has_memory ? std::optional(LayerAttentions(config.cross_attention, config, false, true))
                       : std::nullopt,
            initialiser) {}

DecoderState Decoder::start(const Tensor& memory, const Tensor& memory_mask) const {
  DecoderState state{memory, memory_mask, {}, {}, 0};
  state.layers.resize(layers_.size());
  return state;
}

Tensor Decoder::step(Tensor x, DecoderState& state, Context& context) {
  context.shared_tensors.clear();
  const std::int64_t read = x.size(1);
  ResidualStream stream(std::move(x));
  for (std::size_t i = 0; i < layers_.size(); ++i)
    stream = layers_[i]->step(stream, state.layers[i], state, context);
  state.position += read;
  return output(stream);
}

}  // namespace heed
