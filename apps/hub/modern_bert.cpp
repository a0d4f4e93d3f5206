// ModernBERT (Warner et al. 2024, arXiv 2412.13663) as `transformers` writes it: an encoder with norms
// before its layers, except before the first attention, rotary positions, gated feed-forward layers,
// and a window with a rotary base of its own in two of three layers. With the head of a masked
// language model it becomes a masked language_model run, otherwise a sentence encoder. It has no
// biases; those of heed's norms begin at 0.

#include "heed/apps/hub/architecture.h"
#include "heed/base/names.h"

namespace heed::hub {
namespace {

const std::vector<ConfigMember> modern_bert_members = {{"hidden_size", "width", 1, 65536},
                                                       {"num_attention_heads", "heads", 1, 1024},
                                                       {"intermediate_size", "feed_forward", 1, 1 << 20},
                                                       {"embedding_dropout", "dropout", 0, 0, 0.0},
                                                       {"attention_dropout", "attention_dropout", 0, 0, 0.0},
                                                       {"norm_eps", "epsilon", 0, 0, 1e-5}};

const MemberTable modern_bert_table{
    .only = Json::parse(R"({"attention_bias": false, "mlp_bias": false, "decoder_bias": true,
                            "hidden_activation": "gelu", "classifier_activation": "gelu"})"),
    .read =
        "num_hidden_layers max_position_embeddings norm_bias classifier_bias layer_types rope_parameters "
        "local_attention global_attn_every_n_layers global_rope_theta local_rope_theta",
    .without_effect =
        "mlp_dropout classifier_dropout classifier_pooling deterministic_flash_attn reference_compile "
        "repad_logits_with_grad sparse_prediction sparse_pred_ignore_index initializer_cutoff_factor "
        "cls_token_id position_embedding_type layer_norm_eps"};

/// Adds a weight, and a bias that is 0 unless the file has it.
void add_with_bias(ImportPlan& plan, const std::string& published, const std::string& ours, bool has_bias) {
  plan.names.add_map({published, ours, has_bias});
  if (!has_bias) plan.zeros.push_back(ours + ".bias");
}

ImportPlan import_modern_bert(const Config& config, const Tensors& tensors) {
  const std::string embedding = "embeddings.tok_embeddings.weight", prefix = prefix_of(tensors, embedding);
  config.check_rows("vocab_size", tensors, prefix + embedding);
  const std::int64_t layers = config.integer("num_hidden_layers", 1, 1024),
                     length = config.integer("max_position_embeddings", 1, 1 << 24),
                     period =
                         static_cast<std::int64_t>(config.number_or_null("global_attn_every_n_layers", 3));
  const bool has_bias = config.value("norm_bias", false), has_head = tensors.contains("decoder.bias");
  ImportPlan plan{has_head ? "language_model" : "embed_text", {{"tokenizer", {{"begin", "[CLS]"}}}}, {}};
  const auto third = [](std::int64_t part) { return WeightLayout{.part = part, .parts = 3}; };
  const MapName layer[] = {{"attn.Wqkv", "attention.query", false, third(0)},
                           {"attn.Wqkv", "attention.key", false, third(1)},
                           {"attn.Wqkv", "attention.value", false, third(2)},
                           {"attn.Wo", "attention.output", false},
                           {"mlp.Wi", "feed_forward.gate", false, {.part = 0, .parts = 2}},
                           {"mlp.Wi", "feed_forward.input", false, {.part = 1, .parts = 2}},
                           {"mlp.Wo", "feed_forward.output", false}};
  plan.names.add(embedding, "embedding.weight");
  plan.names.add_layers(layers, "layers.{}.", "encoder.layers.{}.", layer);
  add_with_bias(plan, "embeddings.norm", "input.norm", has_bias);
  add_with_bias(plan, "final_norm", "encoder.norm", has_bias);
  const Config rope = config.part("rope_parameters"), whole = rope.part("full_attention"),
               local = rope.part("sliding_attention");
  for (const Config* one : {&whole, &local}) one->expect("rope_type", "default");
  const std::vector<std::string> types = config.texts("layer_types");
  check(types.empty() || std::ssize(types) == layers, "config.json: \"layer_types\" must have ", layers,
        " entries, has ", types.size());
  Json attentions = Json::array();
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string ours = concat_text("encoder.layers.", i, '.'), theirs = concat_text("layers.", i, '.');
    if (i > 0) add_with_bias(plan, theirs + "attn_norm", ours + "attention_norm", has_bias);
    add_with_bias(plan, theirs + "mlp_norm", ours + "feed_forward_norm", has_bias);
    attentions.push_back({{"name", "dot_product"}});
    if (types.empty() ? i % std::max<std::int64_t>(period, 1) == 0
                      : types[static_cast<std::size_t>(i)] == "full_attention")
      continue;
    attentions.back()["window"] =
        1 + static_cast<std::int64_t>(config.number_or_null("local_attention", 128)) / 2;
    attentions.back()["rotary_base"] = local.value("rope_theta", config.value("local_rope_theta", 1e4));
  }
  plan.names.add_prefix(prefix);
  Json model = config.model(modern_bert_members);
  model.update({{"positions", "rotary"},
                {"rotary_base", whole.value("rope_theta", config.value("global_rope_theta", 1.6e5))},
                {"activation", "geglu"},
                {"feed_forward_bias", false},
                {"attention_bias", false},
                {"norm", "pre"},
                {"norm_kind", "layer"},
                {"first_norm", false},
                {"embedding_norm", true},
                {"scale_embeddings", false},
                {has_head ? "decoder_layers" : "encoder_layers", layers},
                {has_head ? "decoder_attention" : "encoder_attention", attentions}});
  if (has_head) {
    const bool tied = ties_output(plan, config, tensors, "decoder.weight", prefix + embedding);
    if (!tied) plan.names.add("decoder.weight", "output.weight");
    plan.names.add("decoder.bias", "output_bias");
    add_with_bias(plan, "head.dense", "transform", config.value("classifier_bias", false));
    add_with_bias(plan, "head.norm", "transform_norm", has_bias);
    model.update(
        {{"max_length", length}, {"tie_embeddings", tied ? "decoder" : "none"}, {"output_transform", true}});
    plan.settings["objective"] = "masked";
  } else {
    model["pooling"] = "mean";
    plan.settings["data"] = {{"max_tokens", length}, {"long_texts", "cut"}};
  }
  plan.settings["model"] = std::move(model);
  return plan;
}

}  // namespace

std::vector<Architecture> modern_bert_architectures() {
  static constexpr std::string_view heads[] = {"Model", "ForMaskedLM"};
  return {{"modernbert", "ModernBERT", modern_bert_members, &modern_bert_table, import_modern_bert, nullptr,
           nullptr, heads}};
}

}  // namespace heed::hub
