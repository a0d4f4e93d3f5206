// The Llama family as `transformers` writes it (Touvron et al. 2023, arXiv 2302.13971; Llama 3:
// arXiv 2407.21783): a decoder with RMS norms before its layers, rotary positions, a gated
// feed-forward layer, grouped queries and an output map that may be tied to the embedding. SmolLM2
// and TinyLlama have the same layout. Its relatives differ in a few lines:
//
// - Qwen2 and 2.5 (arXiv 2407.10671) add biases of query, key and value; Qwen3 (arXiv 2505.09388)
//   normalises queries and keys. Some of their layers may see a window.
// - Mistral (arXiv 2310.06825): all layers may see a window.
// - Phi-3 (arXiv 2404.14219) joins query, key and value in one weight, and gate and input.
// - Gemma 2 (arXiv 2408.00118): norms on both sides of a sub-layer, published minus 1, scaled
//   embeddings, caps of the logits, a window in every second layer. Gemma 3 (arXiv 2503.19786): no
//   caps, norms of queries and keys, a window and another rotary base in five of six layers.

#include <cmath>

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"
#include "heed/base/names.h"

namespace heed::hub {
namespace {

constexpr const char* llama_head = "lm_head.weight";
/// The most tokens read at once, even if the model can read more, because training uses windows of
/// this length.
constexpr std::int64_t most_read_by_llama = 4096;

const std::vector<ConfigMember> llama_members = {{"hidden_size", "width", 1, 65536},
                                                 {"num_attention_heads", "heads", 1, 1024},
                                                 {"intermediate_size", "feed_forward", 1, 1 << 20},
                                                 {"num_hidden_layers", "decoder_layers", 1, 1024},
                                                 {"max_position_embeddings", "max_length", 1, 1 << 24},
                                                 {"attention_dropout", "attention_dropout", 0, 0, 0.0},
                                                 {"rms_norm_eps", "epsilon", 0, 0, 1e-6}};

/// What the relatives read of config.json beside `llama_members`.
constexpr const char* read_by_llama =
    "num_key_value_heads head_dim hidden_act hidden_activation attention_bias mlp_bias rope_parameters "
    "rope_theta rope_scaling rope_local_base_freq original_max_position_embeddings partial_rotary_factor "
    "sliding_window use_sliding_window max_window_layers layer_types sliding_window_pattern "
    "_sliding_window_pattern query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping";
const MemberTable llama_table{
    .only = Json::parse(R"({"is_causal": true, "use_sliding_window": false, "layer_types": "full_attention",
                            "partial_rotary_factor": 1.0})"),
    .read = read_by_llama,
    .without_effect = "pretraining_tp"};
const MemberTable qwen_table{.only = Json::parse(R"({"is_causal": true, "partial_rotary_factor": 1.0})"),
                             .read = read_by_llama};
const MemberTable mistral_table{
    .only = Json::parse(R"({"is_causal": true, "attention_bias": false, "partial_rotary_factor": 1.0})"),
    .read = read_by_llama};
const MemberTable phi_table{.only = Json::parse(R"({"is_causal": true, "attention_bias": false})"),
                            .read = read_by_llama,
                            .without_effect = "resid_pdrop embd_pdrop"};
const MemberTable gemma_table{.only = Json::parse(R"({"is_causal": true, "use_bidirectional_attention": false,
                            "partial_rotary_factor": 1.0})"),
                              .read = read_by_llama,
                              .without_effect = "cache_implementation"};

/// The gate of the feed-forward layer: its published name, and heed's for the layer.
constexpr std::pair<const char*, const char*> llama_gates[] = {
    {"silu", "swiglu"}, {"gelu", "geglu"}, {"gelu_pytorch_tanh", "geglu_tanh"}};

/// The types of runs that are exported, and the beginnings of their classes in `transformers`.
constexpr std::pair<std::string_view, const char*> llama_classes[] = {
    {"llama", "Llama"}, {"mistral", "Mistral"}, {"phi3", "Phi3"},
    {"qwen3", "Qwen3"}, {"gemma2", "Gemma2"},   {"gemma3_text", "Gemma3"}};

/// A member of the family: its type, and the parts in which it differs.
struct LlamaKind {
  std::string type;
  std::int64_t heads = 1, key_heads = 1;
  bool attention_bias = false;  ///< of query, key and value
  bool output_bias = false;     ///< of attention's output
  bool feed_forward_bias = false;
  bool normalised = false;  ///< queries and keys are

  bool is_gemma() const { return type.starts_with("gemma"); }
  bool is_gemma3() const { return type == "gemma3_text"; }
};

WeightNames llama_names(std::int64_t layers, const LlamaKind& kind, const std::string& prefix) {
  const WeightLayout norm{.offset = kind.is_gemma() ? 1.0 : 0.0};
  const bool joins = kind.type == "phi3", bias = kind.attention_bias;
  const auto of_heads = [&](std::int64_t part, std::int64_t span) {
    return joins ? WeightLayout{.part = part, .parts = kind.heads + 2 * kind.key_heads, .span = span}
                 : WeightLayout();
  };
  const auto half = [&](std::int64_t part) {
    return joins ? WeightLayout{.part = part, .parts = 2} : WeightLayout();
  };
  const auto name = [&](const char* joined, const char* own) { return joins ? joined : own; };
  const char *const qkv = "self_attn.qkv_proj", *const up = "mlp.gate_up_proj",
                    *const after = "post_attention_layernorm";
  std::vector<MapName> layer = {
      {"input_layernorm", "self_attention_norm", false, norm},
      {name(qkv, "self_attn.q_proj"), "self_attention.query", bias, of_heads(0, kind.heads)},
      {name(qkv, "self_attn.k_proj"), "self_attention.key", bias, of_heads(kind.heads, kind.key_heads)},
      {name(qkv, "self_attn.v_proj"), "self_attention.value", bias,
       of_heads(kind.heads + kind.key_heads, kind.key_heads)},
      {"self_attn.o_proj", "self_attention.output", kind.output_bias},
      {after, kind.is_gemma() ? "self_attention_norm.after" : "feed_forward_norm", false, norm},
      {name(up, "mlp.gate_proj"), "feed_forward.gate", kind.feed_forward_bias, half(0)},
      {name(up, "mlp.up_proj"), "feed_forward.input", kind.feed_forward_bias, half(1)},
      {"mlp.down_proj", "feed_forward.output", kind.feed_forward_bias}};
  if (kind.is_gemma()) {
    layer.push_back({"pre_feedforward_layernorm", "feed_forward_norm", false, norm});
    layer.push_back({"post_feedforward_layernorm", "feed_forward_norm.after", false, norm});
  }
  if (kind.normalised) {
    layer.push_back({"self_attn.q_norm", "self_attention.query_norm", false, norm});
    layer.push_back({"self_attn.k_norm", "self_attention.key_norm", false, norm});
  }
  WeightNames names;
  names.add("embed_tokens.weight", "embedding.weight");
  names.add_layers(layers, "layers.{}.", "decoder.layers.{}.", layer);
  names.add("norm.weight", "decoder.norm.weight", norm);
  names.add_prefix(prefix);
  return names;
}

/// Returns the window of each layer; 0: the layer sees the whole text.
std::vector<std::int64_t> published_windows(const Config& config, std::int64_t layers) {
  const std::string& type = config.type();
  const bool is_qwen = type.starts_with("qwen"), has_default = type == "mistral" || type.starts_with("gemma");
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers));
  if (type == "llama" || (is_qwen && !config.value("use_sliding_window", false).get<bool>())) return windows;
  const auto window =
      static_cast<std::int64_t>(config.number_or_null("sliding_window", has_default ? 4096 : 0));
  check(window >= 0 && window < 1 << 24, "config.json: \"sliding_window\" must be 0 to ", 1 << 24, ", is ",
        window);
  const std::vector<std::string> types = config.texts("layer_types");
  const bool is_gemma = type.starts_with("gemma"), has_types = !types.empty() && (is_qwen || is_gemma);
  const auto is_known = [](const std::string& one) {
    return one == "sliding_attention" || one == "full_attention";
  };
  check(!has_types || (types.size() == windows.size() && std::ranges::all_of(types, is_known)),
        "config.json: \"layer_types\" must be full_attention or sliding_attention for each of the ", layers,
        " layers, is ", listed(types));
  std::int64_t period = type == "gemma2" ? 2 : 6;  // every so many layers, one sees the whole text
  for (const char* const name : {"sliding_window_pattern", "_sliding_window_pattern"})
    if (config.has(name)) period = config.integer(name, 1, 1024);
  std::int64_t first = is_qwen ? 28 : 0;  // the first layer with a window
  if (is_qwen && config.has("max_window_layers")) first = config.integer("max_window_layers", 0, 1 << 20);
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool slides = has_types  ? types[static_cast<std::size_t>(i)] == "sliding_attention"
                        : is_gemma ? (i + 1) % period != 0
                                   : i >= first;
    if (slides) windows[static_cast<std::size_t>(i)] = window;
  }
  return windows;
}

LlamaKind llama_kind(const Config& config) {
  LlamaKind kind{.type = config.type()};
  kind.normalised = kind.type == "qwen3" || kind.is_gemma3();
  kind.attention_bias = kind.type == "qwen2" || config.value("attention_bias", false).get<bool>();
  kind.output_bias = kind.type != "qwen2" && kind.attention_bias;
  kind.feed_forward_bias = kind.type == "llama" && config.value("mlp_bias", false).get<bool>();
  return kind;
}

/// Sets rotary positions: those of the model, and for Gemma 3 the base of layers with a window.
double set_rotary(const Config& config, const LlamaKind& kind, Json& model) {
  Config rope = config.part(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  const double base = config.value("rope_theta", kind.is_gemma3() ? 1e6 : 1e4);
  double local = 0;
  if (kind.is_gemma3()) {
    const Config own = rope.part("sliding_attention");
    own.expect("rope_type", "default");
    local = own.value("rope_theta", config.value("rope_local_base_freq", 1e4));
    if (rope.has("full_attention")) rope = rope.part("full_attention");
  }
  for (const char* const layers : {"full_attention", "sliding_attention"}) rope.expect(layers, nullptr);
  if (kind.type != "phi3") rope.expect("partial_rotary_factor", 1.0);
  model.update(rotary_settings(config, rope, base));
  return local;
}

/// Returns the attention of each layer, or of all.
Json llama_attention(const Config& config, const LlamaKind& kind, const Json& model, double local_base) {
  const std::int64_t heads = model["heads"], head_width = model["head_width"];
  Json attention = {{"name", "dot_product"}};
  if (kind.key_heads != heads) attention["kv_heads"] = kind.key_heads;
  if (kind.output_bias != kind.attention_bias) attention["output_bias"] = kind.output_bias;
  if (kind.normalised) attention["qk_norm"] = true;
  if (kind.is_gemma()) {
    const double divisor = config.value("query_pre_attn_scalar", 256.0);
    if (divisor != static_cast<double>(head_width)) attention["logit_scale"] = 1 / std::sqrt(divisor);
    const double cap = config.number_or_null("attn_logit_softcapping", kind.is_gemma3() ? 0 : 50);
    if (cap > 0) attention["logit_cap"] = cap;
  }
  Json all = Json::array();
  for (const std::int64_t window : published_windows(config, model["decoder_layers"])) {
    all.push_back(attention);
    if (window == 0) continue;
    all.back()["window"] = window;
    if (local_base > 0) all.back()["rotary_base"] = local_base;
  }
  return std::ranges::count(all, all[0]) == std::ssize(all) ? all[0] : all;
}

ImportPlan import_llama(const Config& config, const Tensors& tensors) {
  const std::string prefix = prefix_of(tensors, "embed_tokens.weight"),
                    head = prefix_of(tensors, llama_head) + llama_head,
                    embedding = prefix + "embed_tokens.weight";
  config.check_rows("vocab_size", tensors, embedding);
  LlamaKind kind = llama_kind(config);
  Json model = config.model(llama_members);
  const std::int64_t length = model["max_length"];
  kind.heads = model["heads"];
  kind.key_heads =
      config.has("num_key_value_heads") ? config.integer("num_key_value_heads", 1, 1024) : kind.heads;
  // where the file does not say it
  std::int64_t head_width = kind.type == "qwen3" ? 128 : kind.is_gemma() ? 256 : 0;
  if (config.has("head_dim")) head_width = config.integer("head_dim", 1, 65536);
  const char* const gate_member = kind.is_gemma() ? "hidden_activation" : "hidden_act";
  const std::string gate = config.value(gate_member, kind.is_gemma() ? "gelu_pytorch_tanh" : "silu");
  ImportPlan plan{
      "language_model", {}, llama_names(model["decoder_layers"], kind, prefix), {".rotary_emb.inv_freq"}};
  const bool tied = ties_output(plan, config, tensors, head, embedding, kind.is_gemma());
  if (!tied) plan.names.add(head, "output.weight");
  for (const auto& [theirs, ours] : llama_gates)
    if (gate == theirs) model["activation"] = ours;
  check(model.contains("activation"), "config.json: \"", gate_member, "\" is \"", gate,
        "\", a gate that heed does not have; it has silu, gelu and gelu_pytorch_tanh");
  model.update({{"head_width", head_width},
                {"positions", "rotary"},
                {"dropout", 0.0},
                {"tie_embeddings", tied ? "decoder" : "none"},
                {"scale_embeddings", kind.is_gemma()},
                {"attention_bias", kind.attention_bias},
                {"feed_forward_bias", kind.feed_forward_bias},
                {"norm", kind.is_gemma() ? "sandwich" : "pre"},
                {"norm_kind", "rms"}});
  if (kind.is_gemma())
    model["output_cap"] = config.number_or_null("final_logit_softcapping", kind.is_gemma3() ? 0 : 30);
  const double local_base = set_rotary(config, kind, model);
  model["decoder_attention"] = llama_attention(config, kind, model, local_base);
  // The length of dynamic positions is that of the training texts.
  const double growth =
      model.value("rotary_scaling", "") == "dynamic" ? model["rotary_factor"].get<double>() : 1;
  const auto readable = static_cast<std::int64_t>(static_cast<double>(length) * growth);
  model["max_length"] = std::min(readable, most_read_by_llama);
  plan.settings["model"] = std::move(model);
  if (readable > most_read_by_llama)
    plan.remarks.push_back(
        concat_text("texts are read ", most_read_by_llama, " tokens at a time, of the ", readable,
                    " that the model can read; a training from this run may set another model.max_length"));
  return plan;
}

/// The attentions of a run's layers, as objects with all that `export_llama` looks at.
std::vector<Json> attentions_of_run(const Json& model) {
  const Json& said = model.at("decoder_attention");
  std::vector<Json> all(model.at("decoder_layers").get<std::size_t>());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Json& own = !said.is_array() ? said : said[said.size() == 1 ? 0 : i];
    all[i] = Json::parse(R"({"name": "dot_product", "heads": 0, "kv_heads": 0, "qk_norm": false, "window": 0,
        "logit_cap": 0.0, "logit_scale": 0.0, "rotary_base": 0.0, "sink": "none", "gate": "none"})");
    all[i]["output_bias"] = model.at("attention_bias");
    all[i].update(own.is_string() ? Json{{"name", own}} : own);
  }
  return all;
}

/// The window of all layers, or of some of them.
struct RunWindows {
  std::int64_t size = 0;
  std::vector<bool> slides;
  double rotary_base = 0;  ///< of these layers
};

/// Takes the windows out of the attentions of a run, and returns the attention that all layers then have.
/// Throws an Error if they differ.
Json take_windows(std::vector<Json> layers, RunWindows& windows) {
  for (Json& one : layers) {
    const std::int64_t window = one.value("window", std::int64_t{0});
    windows.slides.push_back(window > 0);
    check(window == 0 || windows.size == 0 || window == windows.size,
          "the layout of Llama has one window; model.decoder_attention has windows of ", windows.size,
          " and ", window);
    const double base = one.value("rotary_base", 0.0);
    if (window > 0) windows.size = window, windows.rotary_base = base, one["rotary_base"] = 0.0;
    one["window"] = 0;
  }
  for (const Json& one : layers)
    check(one == layers.front(),
          "the layout of Llama has layers that differ in their windows only, but here are ",
          dumped(layers.front()), " and ", dumped(one));
  return layers.front();
}

/// Returns the member of the family that can express a run; "" if there is none.
std::string llama_type(const RunContent& run) {
  if (run.task != "language_model" || run.settings.value("objective", "causal") != "causal" ||
      run.settings.at("model").at("positions") != "rotary")
    return "";
  const Json& model = run.settings.at("model");
  const Json first = attentions_of_run(model).front();
  const bool normalised = first.at("qk_norm") == true;
  if (model.at("norm") == "sandwich") return normalised ? "gemma3_text" : "gemma2";
  if (normalised) return "qwen3";
  if (model.at("rotary_share") != 1.0) return "phi3";
  return first.at("window") > 0 ? "mistral" : "llama";
}

/// Sets the members of config.json in which Gemma differs.
void publish_gemma(const LlamaKind& kind, const Json& model, const Json& attention, const RunWindows& windows,
                   double head_width, Json& config) {
  const double scale = attention.at("logit_scale"), divisor = scale > 0 ? 1 / (scale * scale) : head_width;
  check(std::abs(divisor - std::round(divisor)) < 1e-6 * divisor,
        "the layout of Gemma has logits divided by the root of an integer; logit_scale is ", scale);
  const auto cap = [](const Json& value) { return value == 0.0 ? Json() : value; };
  config.update({{"hidden_activation", config.at("hidden_act")},
                 {"query_pre_attn_scalar", std::llround(divisor)},
                 {"attn_logit_softcapping", cap(attention.at("logit_cap"))},
                 {"final_logit_softcapping", cap(model.at("output_cap"))}});
  if (!kind.is_gemma3()) return;
  const Json base = windows.rotary_base > 0 ? Json(windows.rotary_base) : model.at("rotary_base");
  config["rope_parameters"] = {{"full_attention", config.at("rope_parameters")},
                               {"sliding_attention", {{"rope_theta", base}, {"rope_type", "default"}}}};
  config["rope_local_base_freq"] = base;
}

/// Exports a run in the layout of a member of the family. It has all attention biases or none, so missing
/// ones are added as 0: of Qwen2, too, for which `transformers` 5 ignores tokenizer.json.
ExportPlan export_llama(RunContent run) {
  const Json& model = run.settings.at("model");
  LlamaKind kind{.type = llama_type(run)};
  RunWindows windows;
  const Json attention = take_windows(attentions_of_run(model), windows);
  const bool slides = windows.size > 0, all_slide = std::ranges::count(windows.slides, false) == 0;
  const bool has_scales = attention.at("logit_cap") != 0.0 || attention.at("logit_scale") != 0.0;
  check(
      attention.at("sink") == "none" && attention.at("gate") == "none" && attention.at("heads") == 0 &&
          attention.at("rotary_base") == 0.0 && (windows.rotary_base == 0 || kind.is_gemma3()) &&
          (kind.is_gemma() || !has_scales) && (!slides || kind.type != "llama") &&
          (!slides || all_slide || kind.is_gemma() || kind.type == "qwen3"),
      "the layout of ", kind.type,
      " has dot_product attention without sink, gate, or heads of its own, for Gemma only with logit_cap and "
      "logit_scale, for Gemma 3 with a rotary_base of layers with a window, with a window in all layers or "
      "in "
      "none unless qk_norm is set; model.decoder_attention is ",
      dumped(model.at("decoder_attention")));
  Json fixed = {{"norm_kind", "rms"}, {"output_bias", false}, {"share_layers", "none"},
                {"token_types", 0},   {"canon", 0},           {"embedding_norm", false}};
  if (kind.type != "llama") fixed["feed_forward_bias"] = false;
  if (kind.type == "mistral" || kind.type == "phi3") fixed["attention_bias"] = false;
  fixed.update(kind.is_gemma() ? Json{{"scale_embeddings", true}} : Json{{"output_cap", 0.0}});
  check_fits(
      kind.type, model, fixed,
      Json::parse(R"({"activation": ["swiglu", "geglu", "geglu_tanh"], "norm": ["pre", "sandwich"]})"));
  check_fits(kind.type, {{"decoder_attention", attention.at("name")}}, {{"decoder_attention", "dot_product"}},
             Json::object());
  const NoGrad no_grad;
  kind.attention_bias = model.at("attention_bias");
  kind.output_bias = attention.at("output_bias");
  kind.feed_forward_bias = model.at("feed_forward_bias");
  kind.normalised = attention.at("qk_norm");
  if (kind.attention_bias != kind.output_bias) {
    add_missing_biases(run.weights, ".self_attention.");
    kind.attention_bias = kind.output_bias = true;
  }
  const bool tied =
      kind.is_gemma() ? model.at("tie_embeddings") != "none" : fold_embedding_scale(run.weights, model);
  const std::int64_t width = model.at("width"), own_width = model.at("head_width"),
                     key_heads = attention.at("kv_heads");
  kind.heads = model.at("heads");
  kind.key_heads = key_heads > 0 ? key_heads : kind.heads;
  const std::int64_t head_width = own_width > 0 ? own_width : width / kind.heads;
  const auto* const gate = std::ranges::find(llama_gates, model.at("activation").get<std::string>(),
                                             [](const auto& pair) { return pair.second; });
  const char* const class_name =
      std::ranges::find(llama_classes, kind.type, [](const auto& pair) { return pair.first; })->second;
  const Json rope = published_rotary(model);
  Json config = published_members(model, llama_members);
  config.update({{"architectures", {concat_text(class_name, "ForCausalLM")}},
                 {"model_type", kind.type},
                 {"num_key_value_heads", kind.key_heads},
                 {"head_dim", head_width},
                 {"hidden_act", gate->first},
                 {"rope_parameters", rope},
                 {"rope_theta", model.at("rotary_base")},
                 {"bos_token_id", run.begin >= 0 ? Json(run.begin) : Json()},
                 {"eos_token_id", published_ends(run)},
                 {"tie_word_embeddings", tied},
                 {"vocab_size", run.vocabulary}});
  if (rope.at("rope_type") != "default") config["rope_scaling"] = rope;  // for transformers before 5
  if (rope.at("rope_type") == "dynamic") config["max_position_embeddings"] = model.at("rotary_length");
  const Json& trained = model.at(model.at("rotary_length") > 0 ? "rotary_length" : "max_length");
  if (kind.type == "phi3") config["partial_rotary_factor"] = model.at("rotary_share");
  if (kind.type == "phi3") config["original_max_position_embeddings"] = trained;
  config["attention_bias"] = kind.attention_bias;
  if (kind.type == "llama") config["mlp_bias"] = kind.feed_forward_bias;
  if (kind.type != "llama") {
    config["sliding_window"] = slides ? Json(windows.size) : kind.is_gemma() ? Json(4096) : Json();
    config["pad_token_id"] = run.pad >= 0 ? Json(run.pad) : Json();  // defaults may be beyond the vocabulary
  }
  if (kind.type == "qwen3") config["use_sliding_window"] = slides;
  if (kind.is_gemma() || (kind.type == "qwen3" && slides))
    for (const bool one : windows.slides)
      config["layer_types"].push_back(one ? "sliding_attention" : "full_attention");
  if (kind.is_gemma())
    publish_gemma(kind, model, attention, windows, static_cast<double>(head_width), config);
  WeightNames names = llama_names(model.at("decoder_layers"), kind, "model.");
  if (!tied) names.add(llama_head, "output.weight");
  return {std::move(config), std::move(names), std::move(run.weights)};
}

template <std::size_t number>
bool exports_as(const RunContent& run) {
  return llama_type(run) == llama_classes[number].first;
}

}  // namespace

std::vector<Architecture> llama_architectures() {
  static constexpr std::string_view heads[] = {"ForCausalLM", "Model"};
  std::vector<Architecture> all;
  const auto add = [&](const char* type, const char* name, const MemberTable& table,
                       bool (*exports)(const RunContent&)) {
    all.push_back({type, name, llama_members, &table, import_llama, exports, export_llama, heads});
  };
  add("llama", "Llama", llama_table, exports_as<0>);
  add("mistral", "Mistral", mistral_table, exports_as<1>);
  add("phi3", "Phi-3", phi_table, exports_as<2>);
  add("qwen2", "Qwen2", qwen_table, nullptr);
  add("qwen3", "Qwen3", qwen_table, exports_as<3>);
  add("gemma2", "Gemma 2", gemma_table, exports_as<4>);
  add("gemma3_text", "Gemma 3", gemma_table, exports_as<5>);
  return all;
}

}  // namespace heed::hub
