#include "adapters.h"

#include <algorithm>

#include "heed/base/error.h"
#include "heed/models/attention/shared/block_patterns.h"
#include "heed/models/sequence_encoder.h"

namespace heed::verify {
namespace {

const std::vector<ParameterName>& shared_parameters() {
  static const std::vector<ParameterName> names = {
      {"Wq", "query.weight", true},  {"bq", "query.bias"},
      {"Wk", "key.weight", true},    {"bk", "key.bias"},
      {"Wv", "value.weight", true},  {"bv", "value.bias"},
      {"Wo", "output.weight", true}, {"bo", "output.bias"},
  };
  return names;
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

/// i32 [H, N, N]: which keys each query of the case's sequence looks at.
Tensor visible_keys(const Attention& attention, const CaseInputs& inputs) {
  return dynamic_cast<const PatternAttention&>(attention).visible(inputs.attention.x.size(1));
}

void take_layer(const ReferenceCase& reference, AttentionConfig& config) {
  config.layer = reference.config.value("layer", 0);
}

CaseOutputs run_sparse(const ReferenceCase& reference, Attention& attention, const CaseInputs& inputs,
                       Context& context) {
  CaseOutputs result = run_once(*find_adapter(reference), attention, inputs, context);
  result.discrete["pattern"] = visible_keys(attention, inputs);
  return result;
}

/// Its random blocks are for the length of the case.
void take_length(const ReferenceCase& reference, AttentionConfig& config) {
  config.max_length = reference.at("in.X").size(1);
}

CaseOutputs run_bigbird(const ReferenceCase& reference, Attention& attention, const CaseInputs& inputs,
                        Context& context) {
  for (const NamedTensor& buffer : attention.buffers()) {
    const std::vector<std::int32_t> drawn = inputs.special.at("rand_blocks").to_vector<std::int32_t>();
    buffer.tensor->assign(std::span<const std::int32_t>(drawn));
  }
  CaseOutputs result = run_once(*find_adapter(reference), attention, inputs, context);
  // One entry of a block speaks for all of it, but where causality cuts blocks.
  if (!attention.config().causal) {
    const std::int64_t block = reference.config.at("block"), length = inputs.attention.x.size(1);
    const Tensor rows = slice(visible_keys(attention, inputs), 1, 0, length, block);
    result.discrete["layout"] = contiguous(slice(rows, 2, 0, length, block));
  }
  return result;
}

CaseOutputs run_longformer(const ReferenceCase& reference, Attention& attention, const CaseInputs& inputs,
                           Context& context) {
  CaseInputs with_global = inputs;
  const auto global = inputs.special.find("glob");
  if (global != inputs.special.end()) with_global.attention.global = global->second;
  return run_once(*find_adapter(reference), attention, with_global, context);
}

/// The case counts the tokens on each side of the window.
void take_window(const ReferenceCase& reference, AttentionConfig& config) {
  config.options.set("window", 2 * reference.config.at("half").get<std::int64_t>());
  if (!reference.has("in.glob")) config.options.set("global_tokens", std::int64_t{0});
}

std::unique_ptr<Module> make_pooling(const ReferenceCase& reference) {
  if (!reference.has("param.pool.W1")) return nullptr;
  Initialiser initialiser(0);
  return std::make_unique<AttentionPooling>(reference.at("in.X").size(-1), initialiser);
}

/// x <- O, as many times as the case has layers, and what the pooling makes of the last.
CaseOutputs run_fastformer(const ReferenceCase& reference, Attention& attention, const CaseInputs& inputs,
                           Context& context) {
  CaseOutputs result;
  CaseInputs layer = inputs;
  for (int i = 0; i < reference.config.value("layers", 1); ++i) {
    result = run_once(*find_adapter(reference), attention, layer, context);
    layer.attention.x = result.outputs["O"];
  }
  if (inputs.companion) {
    const auto& pooling = dynamic_cast<const AttentionPooling&>(*inputs.companion);
    result.outputs["pooled"] = pooling(result.outputs["O"], inputs.attention.mask);
  }
  return result;
}

/// L, the length that the parameters were made for.
void take_max_length(const ReferenceCase& reference, AttentionConfig& config) {
  config.max_length = reference.config.at("L");
}

/// L, where there are biases between places.
void take_length_of_biases(const ReferenceCase& reference, AttentionConfig& config) {
  if (reference.has("param.of_keys")) take_max_length(reference, config);
}

/// gamma is for cross-attention; the cases of self-attention name the 1 that it has there.
void take_gamma(const ReferenceCase& reference, AttentionConfig& config) {
  if (config.cross) config.options.set("gamma", reference.config.value("gamma", 1.0));
}

/// Every Synthesizer case names the settings of all kinds; a layer takes those that its kinds have.
void take_synthesizer_settings(const ReferenceCase& reference, AttentionConfig& config) {
  const auto kinds = reference.config.at("kinds").get<std::vector<std::string>>();
  if (kinds.size() > 1) config.options.set("components", kinds);
  const auto take = [&](const char* kind, std::initializer_list<const char*> keys) {
    if (!contains(kinds, kind)) return;
    for (const char* key : keys)
      if (reference.config.contains(key))
        config.options.set(key, option_from_json(key, reference.config[key].dump()));
  };
  take("dense", {"share_w2"});
  take("fact_dense", {"tiling", "a", "b"});
  take("fact_random", {"k"});
  for (const std::string& kind : kinds) {
    const std::string prefix = kinds.size() == 1 ? "param." : "param." + kind + ".";
    if (kind != "dense" && kind != "fact_dense") continue;
    config.options.set("hidden", reference.at(prefix + "W1").size(2));
    config.options.set("logit_bias", reference.has(prefix + "b1"));
  }
  config.bias = reference.has("param.bv");
  take_max_length(reference, config);
}

/// Our names of a Synthesizer's parameters: those of the specification, below "logits.".
std::vector<ParameterName> synthesizer_parameters() {
  std::vector<ParameterName> names = {{"alpha", "logits.alpha"}};
  const auto add = [&](const std::string& kind, std::initializer_list<const char*> parameters) {
    for (const std::string parameter : parameters)
      for (const std::string& prefix : {std::string(), kind + "."})
        names.push_back({prefix + parameter, "logits." + prefix + parameter});
  };
  add("dense", {"W1", "W2", "b1", "b2"});
  add("random", {"R"});
  add("random_fixed", {"R"});
  add("fact_dense", {"W1", "WA", "WB", "b1", "bA", "bB"});
  add("fact_random", {"R1", "R2"});
  names.push_back({"dot.Wq", "logits.dot.query.weight", true});
  names.push_back({"dot.Wk", "logits.dot.key.weight", true});
  names.push_back({"dot.bq", "logits.dot.query.bias"});
  names.push_back({"dot.bk", "logits.dot.key.bias"});
  return names;
}

/// The maps of the parts of mixed heads, "0.Wq".
std::vector<ParameterName> parameters_of_parts() {
  std::vector<ParameterName> names;
  for (const char* part : {"0.", "1.", "2."})
    for (const ParameterName& name : shared_parameters())
      names.push_back({part + name.reference, std::string("parts.") + part + name.ours, name.transposed});
  return names;
}

CaseOutputs run_performer(const ReferenceCase& reference, Attention& attention, const CaseInputs& inputs,
                          Context& context) {
  set_buffer(attention, "features", inputs, "features");
  return run_once(*find_adapter(reference), attention, inputs, context);
}

/// One kind of Synthesizer; `variant` is the first part of the case's name.
Adapter synthesizer(std::string_view variant, std::string_view attention) {
  return {.variant = variant,
          .attention = attention,
          .ignored = {"kinds", "L", "tiling", "a", "b", "k", "share_w2", "df"},
          .parameters = synthesizer_parameters(),
          .configure = take_synthesizer_settings};
}

}  // namespace

std::span<const Adapter> adapters() {
  static const std::vector<ParameterName> sink_and_gate = {
      {"s", "sink.logit"}, {"Wg", "gate.weight", true}, {"bg", "gate.bias"}};
  static const std::vector<Adapter> list = {
      {.variant = "mha",
       .attention = "dot_product",
       .options = {{"kv_heads", "kv_heads"}, {"sink", "sink"}, {"gate", "gate"}},
       .parameters = sink_and_gate},
      {.variant = "shx", .attention = "dot_product"},  // single-headed cross-attention: H = 1
      {.variant = "sparse",
       .attention = "sparse_transformer",
       .options = {{"pattern", "pattern"}, {"mode", "mode"}, {"l", "stride"}, {"c", "summary"}},
       .ignored = {"layer"},
       .configure = take_layer,
       .run = run_sparse},
      {.variant = "bigbird",
       .attention = "bigbird",
       .options = {{"block", "block"},
                   {"global_blocks", "global_blocks"},
                   {"window_blocks", "window_blocks"},
                   {"random_blocks", "random_blocks"}},
       .configure = take_length,
       .run = run_bigbird},
      {.variant = "longformer",
       .attention = "longformer",
       .options = {{"dilation", "dilation"}},
       .ignored = {"window", "half", "glob"},
       .parameters = {{"Wqg", "global_query.weight", true},
                      {"bqg", "global_query.bias"},
                      {"Wkg", "global_key.weight", true},
                      {"bkg", "global_key.bias"},
                      {"Wvg", "global_value.weight", true},
                      {"bvg", "global_value.bias"}},
       .configure = take_window,
       .run = run_longformer},
      {.variant = "fastformer",
       .attention = "fastformer",
       .options = {{"share_qv", "share_qv"}},
       .ignored = {"layers", "layer_sharing"},
       .parameters = {{"wq", "query_score.weight", true},
                      {"cq", "query_score.bias"},
                      {"wk", "key_score.weight", true},
                      {"ck", "key_score.bias"},
                      {"Wr", "output.weight", true},
                      {"br", "output.bias"},
                      {"pool.W1", "companion.hidden.weight", true},
                      {"pool.b1", "companion.hidden.bias"},
                      {"pool.w2", "companion.score.weight", true},
                      {"pool.c2", "companion.score.bias"}},
       .companion = make_pooling,
       .run = run_fastformer},
      clusterformer_adapter(),
      reformer_adapter(),
      routing_adapter(),
      synthesizer("synth_dense", "synthesizer_dense"),
      synthesizer("synth_random", "synthesizer_random"),
      synthesizer("synth_random_fixed", "synthesizer_random_fixed"),
      synthesizer("synth_fact_dense", "synthesizer_factorized_dense"),
      synthesizer("synth_fact_random", "synthesizer_factorized_random"),
      synthesizer("synthesizer", "synthesizer_mixture"),  // the family: any set of kinds
      {.variant = "hardcoded",
       .attention = "hard_coded_gaussian",
       .options = {{"offsets", "offsets"}, {"sigma", "sigma"}},
       .ignored = {"gamma"},
       .configure = take_gamma},
      {.variant = "linformer",
       .attention = "linformer",
       .options = {{"k", "k"}, {"share_kv", "share_kv"}, {"per_head", "per_head"}},
       .ignored = {"L"},
       .parameters = {{"E", "E"}, {"F", "F"}},
       .configure = take_max_length},
      {.variant = "local",
       .attention = "local",
       .options = {{"reach", "reach"}, {"sinks", "sinks"}, {"sink", "sink"}, {"gate", "gate"}},
       .parameters = sink_and_gate},
      {.variant = "differential",
       .attention = "differential",
       .ignored = {"layer"},
       .parameters = {{"lambda_q1", "lambda_q1"},
                      {"lambda_k1", "lambda_k1"},
                      {"lambda_q2", "lambda_q2"},
                      {"lambda_k2", "lambda_k2"},
                      {"gain", "norm"}},
       .configure = take_layer},
      {.variant = "forgetting",
       .attention = "forgetting",
       .parameters = {{"Wf", "forget.weight", true}, {"bf", "forget.bias"}}},
      {.variant = "cosformer", .attention = "cosformer", .ignored = {"L"}, .configure = take_max_length},
      {.variant = "abc",
       .attention = "abc",
       .options = {{"slots", "slots"}},
       .parameters = {{"Ws", "control.weight", true}, {"bs", "control.bias"}}},
      {.variant = "gated_deltanet",
       .attention = "gated_deltanet",
       .options = {{"gated", "gated"}, {"value_width", "value_width"}, {"convolution", "convolution"}},
       .parameters = {{"Wb", "strength.weight", true},
                      {"bb", "strength.bias"},
                      {"conv", "convolution.weight"},
                      {"gain", "norm"},
                      {"Wg", "gate.weight", true},
                      {"bg", "gate.bias"},
                      {"Wa", "decay.weight", true},
                      {"ba", "decay_step"},
                      {"A", "decay_rate"}}},
      {.variant = "mamba2",
       .attention = "mamba2",
       .options = {{"expand", "expand"}, {"state", "state"}, {"convolution", "convolution"}},
       .parameters = {{"Wz", "gate.weight", true},
                      {"bz", "gate.bias"},
                      {"Wx", "value.weight", true},
                      {"bx", "value.bias"},
                      {"WB", "key.weight", true},
                      {"bB", "key.bias"},
                      {"WC", "query.weight", true},
                      {"bC", "query.bias"},
                      {"Wdt", "step.weight", true},
                      {"bdt", "first_step"},
                      {"A", "decay_rate"},
                      {"D", "skip"},
                      {"conv", "convolution.weight"},
                      {"bconv", "convolution.bias"},
                      {"gain", "norm"}}},
      {.variant = "multi_head_latent",
       .attention = "multi_head_latent",
       .options = {{"kv_rank", "kv_rank"}, {"query_rank", "query_rank"}, {"rotary_width", "rotary_width"}},
       .parameters = {{"Wqr", "rotary_query.weight", true},
                      {"bqr", "rotary_query.bias"},
                      {"Wdkv", "latent.weight", true},
                      {"bdkv", "latent.bias"},
                      {"Wkr", "rotary_key.weight", true},
                      {"bkr", "rotary_key.bias"},
                      {"Wuk", "key.weight", true},
                      {"Wuv", "value.weight", true},
                      {"buv", "value.bias"},
                      {"gain_c", "latent_norm"},
                      {"Wdq", "query_latent.weight", true},
                      {"bdq", "query_latent.bias"},
                      {"gain_q", "query_latent_norm"}}},
      {.variant = "kimi_delta",
       .attention = "kimi_delta",
       .options = {{"value_width", "value_width"},
                   {"convolution", "convolution"},
                   {"gate_rank", "gate_rank"}},
       .parameters = {{"Wb", "strength.weight", true},
                      {"bb", "strength.bias"},
                      {"conv", "convolution.weight"},
                      {"gain", "norm"},
                      {"Wa1", "decay_in.weight", true},
                      {"Wa2", "decay_out.weight", true},
                      {"ba", "decay_step"},
                      {"A", "decay_rate"},
                      {"Wg1", "gate_in.weight", true},
                      {"Wg2", "gate_out.weight", true},
                      {"bg", "gate_out.bias"}}},
      {.variant = "rwkv7",
       .attention = "rwkv7",
       .options = {{"rank", "rank"}, {"gate_rank", "gate_rank"}},
       .parameters = {{"Wr", "query.weight", true},
                      {"br", "query.bias"},
                      {"mu", "mix"},
                      {"Ww1", "decay_in.weight", true},
                      {"Ww2", "decay_out.weight", true},
                      {"w0", "first_decay"},
                      {"Wa1", "rate_in.weight", true},
                      {"Wa2", "rate_out.weight", true},
                      {"a0", "first_rate"},
                      {"Wg1", "gate_in.weight", true},
                      {"Wg2", "gate_out.weight", true},
                      {"xi", "removal"},
                      {"alpha", "replacement"},
                      {"rho", "bonus"},
                      {"gain", "norm"},
                      {"norm_bias", "norm_bias"}}},
      {.variant = "linear_transformer", .attention = "linear_transformer"},
      {.variant = "performer",
       .attention = "performer",
       .options = {{"features", "features"}},
       .run = run_performer},
      {.variant = "mixed_heads",
       .attention = "mixed_heads",
       .options = {{"parts", "parts"},
                   {"part_heads", "part_heads"},
                   {"hard_coded_gaussian.offsets", "hard_coded_gaussian.offsets"},
                   {"hard_coded_gaussian.sigma", "hard_coded_gaussian.sigma"},
                   {"hard_coded_gaussian.gamma", "hard_coded_gaussian.gamma"},
                   {"local.reach", "local.reach"}},
       .parameters = parameters_of_parts()},
      {.variant = "fnet", .attention = "fnet", .options = {{"unitary", "unitary"}, {"padding", "padding"}}},
      {.variant = "nystromformer",
       .attention = "nystromformer",
       .options = {{"landmarks", "landmarks"},
                   {"iterations", "iterations"},
                   {"convolution", "convolution"},
                   {"padding", "padding"}},
       .parameters = {{"kernels", "convolution"}}},
      {.variant = "sinkhorn",
       .attention = "sinkhorn",
       .options = {{"block", "block"}, {"iterations", "iterations"}, {"temperature", "temperature"}},
       .ignored = {"L"},
       .parameters = {{"W1", "hidden.weight", true},
                      {"c1", "hidden.bias"},
                      {"W2", "order.weight", true},
                      {"c2", "order.bias"}},
       .configure = take_max_length},
      {.variant = "retnet",
       .attention = "retnet",
       .options = {{"value_width", "value_width"}},
       .parameters = {{"Wg", "gate.weight", true}, {"bg", "gate.bias"}}},
      {.variant = "gated_linear_attention",
       .attention = "gated_linear_attention",
       .options = {{"gate_rank", "gate_rank"}, {"temperature", "temperature"}},
       .parameters = {{"Wr", "gate.weight", true},
                      {"br", "gate.bias"},
                      {"Wa1", "fade_in.weight", true},
                      {"Wa2", "fade_out.weight", true},
                      {"ba", "fade_out.bias"}}},
      {.variant = "attention_free_transformer",
       .attention = "attention_free_transformer",
       .options = {{"form", "form"}, {"rank", "rank"}, {"window", "window"}},
       .ignored = {"L"},
       .parameters = {{"of_queries", "of_queries"}, {"of_keys", "of_keys"}},
       .configure = take_length_of_biases},
      {.variant = "native_sparse",
       .attention = "native_sparse",
       .options = {{"kv_heads", "kv_heads"}, {"block", "block"}, {"blocks", "blocks"}, {"window", "window"}},
       .parameters = {{"Wg", "gate.weight", true},
                      {"bg", "gate.bias"},
                      {"ek", "short_key.positions"},
                      {"Wk1", "short_key.in.weight", true},
                      {"bk1", "short_key.in.bias"},
                      {"Wk2", "short_key.out.weight", true},
                      {"bk2", "short_key.out.bias"},
                      {"ev", "short_value.positions"},
                      {"Wv1", "short_value.in.weight", true},
                      {"bv1", "short_value.in.bias"},
                      {"Wv2", "short_value.out.weight", true},
                      {"bv2", "short_value.out.bias"}}},
      {.variant = "moba", .attention = "moba", .options = {{"block", "block"}, {"blocks", "blocks"}}},
  };
  return list;
}

const Adapter* find_adapter(const ReferenceCase& reference) {
  for (const std::string& name : {reference.variant(), reference.family()})
    for (const Adapter& adapter : adapters())
      if (adapter.variant == name) return &adapter;
  return nullptr;
}

AttentionConfig configuration_of(const ReferenceCase& reference, const Adapter& adapter) {
  static const std::vector<std::string> common = {"variant", "H", "causal", "cross", "bias", "extension"};
  AttentionConfig config;
  config.width = reference.at("in.X").size(-1);
  config.heads = reference.config.at("H");
  config.causal = reference.config.value("causal", false);
  config.cross = reference.config.value("cross", false);
  config.bias = reference.config.value("bias", reference.has("param.bq"));
  for (const auto& [key, value] : reference.config.items()) {
    if (contains(common, key) || contains(adapter.ignored, key)) continue;
    const auto option = std::find_if(adapter.options.begin(), adapter.options.end(),
                                     [&key = key](const auto& entry) { return entry.first == key; });
    check(option != adapter.options.end(), "configuration key \"", key, "\" is not known for variant ",
          adapter.variant);
    config.options.set(option->second, option_from_json(key, value.dump()));
  }
  if (adapter.configure) adapter.configure(reference, config);
  return config;
}

std::vector<ParameterName> parameter_names(const ReferenceCase& reference, const Adapter& adapter) {
  std::vector<ParameterName> names;
  const bool several_layers = !reference.names("param.layer0.").empty();
  for (const std::string& parameter : reference.names("param.")) {
    // "layer0.Wq" is the Wq of a part "layer0"; what has no layer belongs to the first.
    const bool has_layer = several_layers && parameter.starts_with("layer");
    const std::string layer = has_layer ? parameter.substr(0, parameter.find('.') + 1) : "";
    const std::string plain = parameter.substr(layer.size());
    const auto is_it = [&](const ParameterName& name) { return name.reference == plain; };
    const auto own = std::find_if(adapter.parameters.begin(), adapter.parameters.end(), is_it);
    const auto shared = std::find_if(shared_parameters().begin(), shared_parameters().end(), is_it);
    check(own != adapter.parameters.end() || shared != shared_parameters().end(), "parameter ", parameter,
          " is not known for variant ", adapter.variant);
    ParameterName name = own != adapter.parameters.end() ? *own : *shared;
    name.reference = parameter;
    if (several_layers) name.ours = (has_layer ? layer : "layer0.") + name.ours;
    names.push_back(std::move(name));
  }
  return names;
}

CaseOutputs run_once(const Adapter& adapter, Attention& attention, const CaseInputs& inputs,
                     Context& context) {
  CaseOutputs result;
  result.outputs["O"] = attention(inputs.attention, context);
  for (const auto& [reference, ours] : adapter.losses)
    for (const AuxiliaryLoss& loss : context.losses)
      if (loss.name == ours) result.losses[reference] = loss.value;
  return result;
}

}  // namespace heed::verify
