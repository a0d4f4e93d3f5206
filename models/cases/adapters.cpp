#include "heed/models/cases/adapters.h"

#include <algorithm>

#include "heed/base/error.h"
#include "heed/base/names.h"
#include "heed/models/attention/shared/block_patterns.h"
#include "heed/models/sequence_encoder.h"

namespace heed::verify {
namespace {

/// Parameters that several variants share.
constexpr std::string_view shared_parameters =
    "Wq=query.weight bq=query.bias Wk=key.weight bk=key.bias Wv=value.weight bv=value.bias Wo=output.weight "
    "bo=output.bias Wg=gate.weight bg=gate.bias conv=convolution.weight gain=norm A=decay_rate";

/// Finds `name` in a list "name=other ..."; an empty text if it is not there.
std::string_view find_name(std::string_view list, std::string_view name) {
  for (const std::string_view entry : split_at(list, " "))
    if (const std::size_t equals = entry.find('='); entry.substr(0, equals) == name)
      return entry.substr(equals + 1);
  return {};
}

bool contains(std::string_view list, std::string_view name) {
  const auto names = split_at(list, " ");
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// i32 [H, N, N]: which keys each query of the case's sequence looks at.
Tensor visible_keys(const Attention& attention, const CaseInputs& inputs) {
  return dynamic_cast<const PatternAttention&>(attention).visible(inputs.attention.x.size(1));
}

void take_layer(const ReferenceCase& reference, AttentionConfig& config) {
  config.layer = reference.config.value("layer", 0);
}

CaseOutputs run_sparse(const ReferenceCase&, Attention& attention, const CaseInputs& inputs,
                       Context& context) {
  CaseOutputs result = run_once(attention, inputs, context);
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
  CaseOutputs result = run_once(attention, inputs, context);
  // One entry of a block speaks for all of it, but where causality cuts blocks.
  if (!attention.config().causal) {
    const std::int64_t block = reference.config.at("block"), length = inputs.attention.x.size(1);
    const Tensor rows = slice(visible_keys(attention, inputs), 1, 0, length, block);
    result.discrete["layout"] = contiguous(slice(rows, 2, 0, length, block));
  }
  return result;
}

CaseOutputs run_longformer(const ReferenceCase&, Attention& attention, const CaseInputs& inputs,
                           Context& context) {
  CaseInputs with_global = inputs;
  const auto global = inputs.special.find("glob");
  if (global != inputs.special.end()) with_global.attention.global = global->second;
  return run_once(attention, with_global, context);
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
    result = run_once(attention, layer, context);
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
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) return;
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

/// The parameters of a Synthesizer keep their names, below "logits.".
std::string synthesizer_parameters() {
  std::string names =
      "alpha=logits.alpha dot.Wq=logits.dot.query.weight dot.Wk=logits.dot.key.weight "
      "dot.bq=logits.dot.query.bias dot.bk=logits.dot.key.bias";
  for (const char* kind : {"", "dense.", "random.", "random_fixed.", "fact_dense.", "fact_random."})
    for (const char* parameter : {"W1", "W2", "WA", "WB", "b1", "b2", "bA", "bB", "R", "R1", "R2"})
      names += concat_text(" ", kind, parameter, "=logits.", kind, parameter);
  return names;
}

/// The maps of the parts of mixed heads, "0.Wq".
std::string parameters_of_parts() {
  std::string names;
  for (const char* part : {"0.", "1.", "2."})
    for (const std::string_view map : split_at(shared_parameters, " ")) {
      const std::size_t equals = map.find('=');
      names += concat_text(" ", part, map.substr(0, equals), "=parts.", part, map.substr(equals + 1));
    }
  return names;
}

CaseOutputs run_performer(const ReferenceCase&, Attention& attention, const CaseInputs& inputs,
                          Context& context) {
  set_buffer(attention, "features", inputs, "features");
  return run_once(attention, inputs, context);
}

/// One kind of Synthesizer; `variant` is the first part of the case's name.
Adapter synthesizer(std::string_view variant, std::string_view attention) {
  return {.variant = variant,
          .attention = attention,
          .ignored = "kinds L tiling a b k share_w2 df",
          .parameters = synthesizer_parameters(),
          .configure = take_synthesizer_settings};
}

}  // namespace

std::span<const Adapter> adapters() {
  static const std::vector<Adapter> list = {
      {.variant = "mha", .attention = "dot_product", .parameters = "s=sink.logit"},
      {.variant = "shx", .attention = "dot_product"},  // single-headed cross-attention: H = 1
      {.variant = "sparse",
       .attention = "sparse_transformer",
       .options = "l=stride c=summary",
       .ignored = "layer",
       .configure = take_layer,
       .run = run_sparse},
      {.variant = "bigbird", .configure = take_length, .run = run_bigbird},
      {.variant = "longformer",
       .ignored = "window half glob",
       .parameters =
           "Wqg=global_query.weight bqg=global_query.bias Wkg=global_key.weight bkg=global_key.bias "
           "Wvg=global_value.weight bvg=global_value.bias",
       .configure = take_window,
       .run = run_longformer},
      {.variant = "fastformer",
       .ignored = "layers layer_sharing",
       .parameters =
           "wq=query_score.weight cq=query_score.bias wk=key_score.weight ck=key_score.bias "
           "Wr=output.weight br=output.bias pool.W1=companion.hidden.weight "
           "pool.b1=companion.hidden.bias pool.w2=companion.score.weight pool.c2=companion.score.bias",
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
       .ignored = "gamma",
       .configure = take_gamma},
      {.variant = "linformer", .ignored = "L", .configure = take_max_length},
      {.variant = "local", .parameters = "s=sink.logit"},
      {.variant = "differential", .ignored = "layer", .configure = take_layer},
      {.variant = "forgetting", .parameters = "Wf=forget.weight bf=forget.bias"},
      {.variant = "cosformer", .ignored = "L", .configure = take_max_length},
      {.variant = "abc", .parameters = "Ws=control.weight bs=control.bias"},
      {.variant = "gated_deltanet",
       .parameters = "Wb=strength.weight bb=strength.bias Wa=decay.weight ba=decay_step"},
      {.variant = "delta_product",
       .parameters = "Wb=strength.weight bb=strength.bias Wa=decay.weight ba=decay_step"},
      {.variant = "hgrn2",
       .ignored = "layer",
       .parameters = "Wf=forget.weight bf=forget.bias g=bound",
       .configure = take_layer},
      {.variant = "gated_deltanet2",
       .parameters = "Wbw=strength.weight bbw=strength.bias Wa1=decay_in.weight Wa2=decay_out.weight "
                     "ba=decay_step Wg1=gate_in.weight Wg2=gate_out.weight bg=gate_out.bias"},
      {.variant = "comba",
       .parameters =
           "Wb=strength.weight bb=strength.bias Wa=decay.weight ba=decay_step phi=factor c=correction"},
      {.variant = "mamba2",
       .parameters = "Wz=gate.weight bz=gate.bias Wx=value.weight bx=value.bias WB=key.weight bB=key.bias "
                     "WC=query.weight bC=query.bias Wdt=step.weight bdt=first_step D=skip "
                     "bconv=convolution.bias"},
      {.variant = "log_linear",
       .parameters = "Wz=gate.weight bz=gate.bias Wx=value.weight bx=value.bias WB=key.weight bB=key.bias "
                     "WC=query.weight bC=query.bias Wdt=step.weight bdt=first_step D=skip "
                     "bconv=convolution.bias Wl=level.weight bl=level.bias M=level_scale"},
      {.variant = "mamba3",
       .parameters = "Wz=gate.weight bz=gate.bias Wx=value.weight bx=value.bias WB=key.weight bB=key.bias "
                     "WC=query.weight bC=query.bias Wdt=step.weight bdt=first_step WA=decay.weight "
                     "Wl=share.weight Wt=turn.weight cB=first_key cC=first_query gain_B=key_norm "
                     "gain_C=query_norm D=skip Mx=value_scale Mz=gate_scale My=output_scale"},
      {.variant = "path",
       .parameters = "W1=direction_in.weight W2=direction_out.weight Wb=strength.weight bb=strength.bias"},
      {.variant = "mesa_net",
       .parameters = "Wa=decay.weight ba=decay.bias Wb=strength.weight bb=strength.bias l=ridge"},
      {.variant = "multi_head_latent",
       .parameters = "Wqr=rotary_query.weight bqr=rotary_query.bias Wdkv=latent.weight bdkv=latent.bias "
                     "Wkr=rotary_key.weight bkr=rotary_key.bias Wuk=key.weight Wuv=value.weight "
                     "buv=value.bias gain_c=latent_norm Wdq=query_latent.weight bdq=query_latent.bias "
                     "gain_q=query_latent_norm"},
      {.variant = "kimi_delta",
       .parameters = "Wb=strength.weight bb=strength.bias Wa1=decay_in.weight Wa2=decay_out.weight "
                     "ba=decay_step Wg1=gate_in.weight Wg2=gate_out.weight bg=gate_out.bias"},
      {.variant = "rwkv7",
       .parameters = "Wr=query.weight br=query.bias mu=mix Ww1=decay_in.weight Ww2=decay_out.weight "
                     "w0=first_decay Wa1=rate_in.weight Wa2=rate_out.weight a0=first_rate "
                     "Wg1=gate_in.weight Wg2=gate_out.weight xi=removal alpha=replacement rho=bonus"},
      {.variant = "rwkv6",
       .parameters = "Wr=query.weight br=query.bias Wm1=mix_in.weight Wm2=mix_out mu=mix "
                     "Ww1=decay_in.weight Ww2=decay_out w0=first_decay u=bonus"},
      {.variant = "mlstm", .parameters = "wi=input.weight bi=first_input wf=forget.weight bf=first_forget"},
      {.variant = "gated_slot", .parameters = "Wa=control.weight ba=control.bias"},
      {.variant = "based"},
      {.variant = "linear_transformer"},
      {.variant = "performer", .run = run_performer},
      {.variant = "mixed_heads", .parameters = parameters_of_parts()},
      {.variant = "fnet"},
      {.variant = "nystromformer", .parameters = "kernels=convolution"},
      {.variant = "sinkhorn",
       .ignored = "L",
       .parameters = "W1=hidden.weight c1=hidden.bias W2=order.weight c2=order.bias",
       .configure = take_max_length},
      {.variant = "retnet"},
      {.variant = "gated_linear_attention",
       .parameters = "Wr=gate.weight br=gate.bias Wa1=fade_in.weight Wa2=fade_out.weight ba=fade_out.bias"},
      {.variant = "attention_free_transformer", .ignored = "L", .configure = take_length_of_biases},
      {.variant = "native_sparse",
       .parameters = "ek=short_key.positions Wk1=short_key.in.weight bk1=short_key.in.bias "
                     "Wk2=short_key.out.weight bk2=short_key.out.bias ev=short_value.positions "
                     "Wv1=short_value.in.weight bv1=short_value.in.bias Wv2=short_value.out.weight "
                     "bv2=short_value.out.bias"},
      {.variant = "moba"},
      {.variant = "deepseek_sparse",
       .parameters = "Wa=indexer.query.weight ba=indexer.query.bias Wb=indexer.key.weight "
                     "bb=indexer.key.bias Ww=indexer.weight.weight gain_b=indexer.norm.weight "
                     "shift_b=indexer.norm.bias"},
  };
  return list;
}

const Adapter* find_adapter(const ReferenceCase& reference) {
  for (const std::string& name : {reference.variant(), reference.family()})
    for (const Adapter& adapter : adapters())
      if (adapter.variant == name) return &adapter;
  return nullptr;
}

AttentionConfig layer_configuration(const ReferenceCase& reference, const Adapter& adapter) {
  AttentionConfig config;
  config.width = reference.at("in.X").size(-1);
  config.heads = reference.config.at("H");
  config.causal = reference.config.value("causal", false);
  config.cross = reference.config.value("cross", false);
  config.bias = reference.config.value("bias", reference.has("param.bq"));
  for (const auto& [key, value] : reference.config.items()) {
    if (contains("variant H causal cross bias extension", key) || contains(adapter.ignored, key)) continue;
    const std::string_view option = find_name(adapter.options, key);
    config.options.set(std::string(option.empty() ? key : option), option_from_json(key, value.dump()));
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
    std::string_view ours = find_name(adapter.parameters, plain);
    if (ours.empty()) ours = find_name(shared_parameters, plain);
    if (ours.empty()) ours = plain;
    names.push_back(
        {parameter, concat_text(several_layers && !has_layer ? "layer0." : layer, ours),
         ours.ends_with(".weight") && ours != "convolution.weight" && ours != "indexer.norm.weight"});
  }
  return names;
}

CaseOutputs run_once(Attention& attention, const CaseInputs& inputs, Context& context) {
  CaseOutputs result;
  result.outputs["O"] = attention(inputs.attention, context);
  for (const AuxiliaryLoss& loss : context.losses) result.losses[loss.name] = loss.value * loss.weight;
  return result;
}

}  // namespace heed::verify
