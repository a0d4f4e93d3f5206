#include "heed/models/layer_attention.h"

namespace heed {

namespace {

bool is_first_of_kind(const AttentionChoices& choices, const std::string& name, std::int64_t layer) {
  for (std::int64_t earlier = 0; earlier < layer; ++earlier) {
    if (choice_for(choices, earlier).name == name) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<Attention> make_attention(const AttentionChoice& choice, const TransformerConfig& config,
                                          std::int64_t layer, bool causal, bool cross,
                                          Initialiser& initialiser) {
  const Capabilities& can = attention_variant(choice.name).capabilities;
  check(!cross || !can.cross || can.cross_by_step, "attention '", choice.name,
        "' cannot serve as a decoder's cross-attention: ", can.reason);
  AttentionConfig attention;
  attention.width = config.width;
  attention.heads = choice.heads ? choice.heads : config.heads;
  attention.dropout = config.attention_dropout;
  attention.bias = config.attention_bias;
  attention.causal = causal;
  attention.cross = cross;
  attention.max_length = config.max_length;
  attention.layer = layer;
  attention.first_of_kind =
      cross ||
      is_first_of_kind(causal ? config.decoder_attention : config.encoder_attention, choice.name, layer);
  attention.options = choice.options;
  attention.seed = initialiser.next_seed();
  return make_attention(choice.name, attention);
}

}  // namespace heed
