// The Llama family as `transformers` writes it (Touvron et al. 2023, arXiv 2302.13971; Llama 3:
// arXiv 2407.21783): a decoder with RMS norms before its layers, rotary positions, a gated
// feed-forward layer, grouped queries and an output map that may be tied to the embedding. SmolLM2
// and TinyLlama have the same layout. Qwen2 and 2.5 (arXiv 2407.10671) add biases of query, key and
// value; Qwen3 (arXiv 2505.09388) normalises queries and keys.

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"

namespace heed::hub {
namespace {

constexpr const char* llama_head = "lm_head.weight";
/// The most tokens read at once, even if the model can read more, because training uses windows of
/// this length.
constexpr std::int64_t most_read_by_llama = 4096;
/// The numbers of turns between which Llama 3.1 to 3.3 blend frequencies; heed's RotaryAngles uses
/// the same.
constexpr double few_turns_of_llama = 1, many_turns_of_llama = 4;

const std::vector<ConfigMember> llama_members = {{"hidden_size", "width", 1, 65536},
                                                 {"num_attention_heads", "heads", 1, 1024},
                                                 {"intermediate_size", "feed_forward", 1, 1 << 20},
                                                 {"num_hidden_layers", "decoder_layers", 1, 1024},
                                                 {"max_position_embeddings", "max_length", 1, 1 << 24},
                                                 {"attention_dropout", "attention_dropout", 0, 0, 0.0},
                                                 {"rms_norm_eps", "epsilon", 0, 0, 1e-6}};

const MemberTable llama_table{
    .only = Json::parse(R"({"is_causal": true, "use_sliding_window": false, "layer_types": "full_attention",
                            "partial_rotary_factor": 1.0})"),
    .read =
        "num_key_value_heads head_dim hidden_act attention_bias mlp_bias rope_parameters rope_theta "
        "rope_scaling",
    .without_effect = "pretraining_tp sliding_window max_window_layers"};

const Json llama_settings = Json::parse(R"({"norm": "pre", "norm_kind": "rms"})");

/// The gate of the feed-forward layer: its published name, and heed's for the layer.
constexpr std::pair<const char*, const char*> llama_gates[] = {{"silu", "swiglu"}, {"gelu", "geglu"}};

/// The differences between the members of the family.
struct LlamaKind {
  bool attention_bias = false;  ///< of query, key and value
  bool output_bias = false;     ///< of attention's output
  bool feed_forward_bias = false;
  bool normalised = false;  ///< queries and keys are
};

WeightNames llama_names(std::int64_t layers, const LlamaKind& kind, const std::string& prefix) {
  std::vector<MapName> layer = {{"input_layernorm", "self_attention_norm", false},
                                {"self_attn.q_proj", "self_attention.query", kind.attention_bias},
                                {"self_attn.k_proj", "self_attention.key", kind.attention_bias},
                                {"self_attn.v_proj", "self_attention.value", kind.attention_bias},
                                {"self_attn.o_proj", "self_attention.output", kind.output_bias},
                                {"post_attention_layernorm", "feed_forward_norm", false},
                                {"mlp.gate_proj", "feed_forward.gate", kind.feed_forward_bias},
                                {"mlp.up_proj", "feed_forward.input", kind.feed_forward_bias},
                                {"mlp.down_proj", "feed_forward.output", kind.feed_forward_bias}};
  if (kind.normalised) {
    layer.push_back({"self_attn.q_norm", "self_attention.query_norm", false});
    layer.push_back({"self_attn.k_norm", "self_attention.key_norm", false});
  }
  WeightNames names;
  names.add("embed_tokens.weight", "embedding.weight");
  names.add_layers(layers, "layers.{}.", "decoder.layers.{}.", layer);
  names.add("norm.weight", "decoder.norm.weight");
  names.add_prefix(prefix);
  return names;
}

/// Converts "rope_parameters", or in older files "rope_theta" and "rope_scaling", to heed's
/// settings.
Json rotary_settings(const Config& config) {
  const Config rope = config.part(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const Json base = config.value("rope_theta", 10000.0);
  Json settings = {{"rotary_base", rope.value("rope_theta", base)}};
  const std::string kind = rope.value("rope_type", rope.value("type", "default"));
  rope.expect("partial_rotary_factor", 1.0);
  for (const char* const layers : {"full_attention", "sliding_attention"}) rope.expect(layers, nullptr);
  if (kind == "default") return settings;
  check(kind == "linear" || kind == "llama3", "config.json: rotary positions of the kind \"", kind,
        "\" (rope_type), which heed's model does not support; it supports default, linear and llama3");
  settings["rotary_factor"] = rope.number("factor");
  if (kind == "linear") return settings;
  rope.expect("low_freq_factor", few_turns_of_llama);
  rope.expect("high_freq_factor", many_turns_of_llama);
  settings["rotary_length"] = rope.integer("original_max_position_embeddings", 1, 1 << 24);
  return settings;
}

Json published_rotary(const Json& model) {
  const auto factor = model.at("rotary_factor").get<double>();
  const auto length = model.at("rotary_length").get<std::int64_t>();
  Json rope = {{"rope_theta", model.at("rotary_base")}, {"rope_type", "default"}};
  if (factor == 1) return rope;
  rope.update({{"rope_type", length > 0 ? "llama3" : "linear"}, {"factor", factor}});
  if (length > 0)
    rope.update({{"low_freq_factor", few_turns_of_llama},
                 {"high_freq_factor", many_turns_of_llama},
                 {"original_max_position_embeddings", length}});
  return rope;
}

LlamaKind llama_kind(const Config& config) {
  LlamaKind kind;
  kind.normalised = config.type() == "qwen3";
  kind.attention_bias = config.type() == "qwen2" || config.value("attention_bias", false).get<bool>();
  kind.output_bias = config.type() != "qwen2" && kind.attention_bias;
  kind.feed_forward_bias = config.type() == "llama" && config.value("mlp_bias", false).get<bool>();
  return kind;
}

ImportPlan import_llama(const Config& config, const Tensors& tensors) {
  const std::string prefix = prefix_of(tensors, "embed_tokens.weight"),
                    head = prefix_of(tensors, llama_head) + llama_head,
                    embedding = prefix + "embed_tokens.weight";
  config.check_rows("vocab_size", tensors, embedding);
  const LlamaKind kind = llama_kind(config);
  Json model = config.model(llama_members);
  const std::int64_t heads = model["heads"], length = model["max_length"],
                     key_heads = config.has("num_key_value_heads")
                                     ? config.integer("num_key_value_heads", 1, 1024)
                                     : heads;
  std::int64_t head_width = config.type() == "qwen3" ? 128 : 0;  // where the file does not say it
  if (config.has("head_dim")) head_width = config.integer("head_dim", 1, 65536);
  const std::string gate = config.value("hidden_act", "silu");
  Json attention = {{"name", "dot_product"}};
  if (key_heads != heads) attention["kv_heads"] = key_heads;
  if (kind.output_bias != kind.attention_bias) attention["output_bias"] = kind.output_bias;
  if (kind.normalised) attention["qk_norm"] = true;
  ImportPlan plan{
      "language_model", {}, llama_names(model["decoder_layers"], kind, prefix), {".rotary_emb.inv_freq"}};
  const bool tied = ties_output(plan, config, tensors, head, embedding, false);
  if (!tied) plan.names.add(head, "output.weight");
  for (const auto& [theirs, ours] : llama_gates)
    if (gate == theirs) model["activation"] = ours;
  check(model.contains("activation"), "config.json: \"hidden_act\" is \"", gate,
        "\", a gate that heed does not have; it has silu and gelu");
  model.update({{"head_width", head_width},
                {"max_length", std::min(length, most_read_by_llama)},
                {"positions", "rotary"},
                {"tie_embeddings", tied ? "decoder" : "none"},
                {"scale_embeddings", false},
                {"dropout", 0.0},
                {"attention_bias", kind.attention_bias},
                {"feed_forward_bias", kind.feed_forward_bias},
                {"decoder_attention", attention}});
  model.update(rotary_settings(config));
  model.update(llama_settings);
  plan.settings["model"] = std::move(model);
  if (length > most_read_by_llama)
    plan.remarks.push_back(
        concat_text("texts are read ", most_read_by_llama, " tokens at a time, of the ", length,
                    " that the model can read; a training from this run may set another model.max_length"));
  return plan;
}

/// Returns the attention of all layers as an object.
Json attention_of_run(const Json& model) {
  Json attention = model.at("decoder_attention");
  return attention.is_string() ? Json{{"name", attention}} : attention;
}

LlamaKind llama_kind(const Json& model) {
  const bool bias = model.at("attention_bias");
  LlamaKind kind{
      .attention_bias = bias, .output_bias = bias, .feed_forward_bias = model.at("feed_forward_bias")};
  if (const Json attention = attention_of_run(model); attention.is_object()) {
    kind.output_bias = attention.value("output_bias", bias);
    kind.normalised = attention.value("qk_norm", false);
  }
  return kind;
}

/// Returns the member of the family that can express a run; "" if there is none.
std::string_view llama_type(const RunContent& run) {
  if (run.task != "language_model" || run.settings.value("objective", "causal") != "causal" ||
      run.settings.at("model").at("positions") != "rotary")
    return "";
  return llama_kind(run.settings.at("model")).normalised ? "qwen3" : "llama";
}

/// Exports a run in Llama's layout. The layout has all attention biases or none, so missing ones
/// are added as 0: of Qwen2, too, for which `transformers` 5 ignores tokenizer.json.
ExportPlan export_llama(RunContent run) {
  const Json& model = run.settings.at("model");
  const Json attention = attention_of_run(model);
  check(attention.is_object() && attention.value("sink", "none") == "none" &&
            attention.value("gate", "none") == "none" && attention.value("heads", 0) == 0,
        "the layout of Llama has dot_product attention of one kind, without sink, gate or heads of its own; "
        "model.decoder_attention is ",
        dumped(attention));
  check_fits("Llama", model, llama_settings,
             Json::parse(R"({"activation": ["swiglu", "geglu"], "share_layers": ["none"],
                             "embedding_norm": [false], "token_types": [0], "output_bias": [false]})"));
  check_fits("Llama", {{"decoder_attention", attention.value("name", "dot_product")}},
             {{"decoder_attention", "dot_product"}}, Json::object());
  const std::string_view type = llama_type(run);
  if (type == "qwen3") check_fits("Qwen3", model, {{"feed_forward_bias", false}}, Json::object());
  const NoGrad no_grad;
  LlamaKind kind = llama_kind(model);
  if (kind.attention_bias != kind.output_bias) {
    add_missing_biases(run.weights, ".self_attention.");
    kind.attention_bias = kind.output_bias = true;
  }
  const bool tied = fold_embedding_scale(run.weights, model);
  const std::int64_t heads = model.at("heads"), width = model.at("width"), own_width = model.at("head_width"),
                     key_heads = attention.value("kv_heads", std::int64_t{0});
  Json config = published_members(model, llama_members);
  config.update({{"architectures", {type == "llama" ? "LlamaForCausalLM" : "Qwen3ForCausalLM"}},
                 {"model_type", type},
                 {"num_key_value_heads", key_heads > 0 ? key_heads : heads},
                 {"head_dim", own_width > 0 ? own_width : width / heads},
                 {"hidden_act", model.at("activation") == "swiglu" ? "silu" : "gelu"},
                 {"rope_parameters", published_rotary(model)},
                 {"rope_theta", model.at("rotary_base")},
                 {"bos_token_id", run.begin >= 0 ? Json(run.begin) : Json()},
                 {"eos_token_id", published_ends(run)},
                 {"tie_word_embeddings", tied},
                 {"vocab_size", run.vocabulary}});
  if (published_rotary(model).at("rope_type") != "default")  // for transformers before 5
    config["rope_scaling"] = config["rope_parameters"];
  config["attention_bias"] = kind.attention_bias;
  if (type == "llama") config["mlp_bias"] = kind.feed_forward_bias;
  WeightNames names = llama_names(model.at("decoder_layers"), kind, "model.");
  if (!tied) names.add(llama_head, "output.weight");
  return {std::move(config), std::move(names), std::move(run.weights)};
}

}  // namespace

std::vector<Architecture> llama_architectures() {
  static constexpr std::string_view heads[] = {"ForCausalLM", "Model"};
  const auto architecture = [](const char* type, const char* name, bool (*exports)(const RunContent&)) {
    return Architecture{type, name, llama_members, &llama_table, import_llama, exports, export_llama, heads};
  };
  return {architecture("llama", "Llama", [](const RunContent& run) { return llama_type(run) == "llama"; }),
          architecture("qwen2", "Qwen2", nullptr),
          architecture("qwen3", "Qwen3", [](const RunContent& run) { return llama_type(run) == "qwen3"; })};
}

}  // namespace heed::hub
