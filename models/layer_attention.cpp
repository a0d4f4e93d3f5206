#include "heed/models/layer_attention.h"

namespace heed {

std::shared_ptr<Attention> LayerAttentions::make(std::int64_t layer, Initialiser& initialiser) {
  const AttentionChoice& choice = choice_for(choices_, layer);
  if (cross_ && choice.name == "none") return nullptr;
  const Capabilities can = attention_capabilities(choice.name, choice.options);
  check(!cross_ || !can.cross || can.cross_by_step, "attention '", choice.name,
        "' cannot serve as a decoder's cross-attention: ", can.reason);
  std::shared_ptr<Attention>& first = first_[choice.name];
  if (first && config_.share_layers == "attention") return first;
  AttentionConfig attention;
  attention.width = config_.width;
  attention.heads = choice.heads ? choice.heads : config_.heads;
  attention.dropout = config_.attention_dropout;
  attention.bias = config_.attention_bias;
  attention.causal = causal_;
  attention.cross = cross_;
  attention.rotary = config_.positions == "rotary" && !cross_;
  attention.alibi = config_.positions == "alibi" && !cross_;
  attention.relative = config_.positions == "relative" && !cross_;
  attention.max_length = config_.max_length;
  attention.layer = layer;
  attention.first = first.get();
  attention.options = choice.options;
  attention.seed = initialiser.next_seed();
  std::shared_ptr<Attention> made = make_attention(choice.name, attention);
  if (!first) first = made;
  return made;
}

Capabilities LayerAttentions::capabilities(std::int64_t layer) const {
  const AttentionChoice& choice = choice_for(choices_, layer);
  return choice.name == "none" ? Capabilities() : attention_capabilities(choice.name, choice.options);
}

}  // namespace heed
