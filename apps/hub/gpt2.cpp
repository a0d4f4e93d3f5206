// GPT-2 (Radford et al. 2019) as `transformers` writes it: a decoder with norms before its layers,
// learned positions and the output map tied to the embedding. Its linear maps are "Conv1D", stored
// as [in, out]; query, key and value are joined in one.

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed::hub {
namespace {

constexpr const char* gpt2_head = "lm_head.weight";

const std::vector<ConfigMember> gpt2_members = {{"n_embd", "width", 1, 65536},
                                                {"n_head", "heads", 1, 1024},
                                                {"n_layer", "decoder_layers", 1, 1024},
                                                {"n_positions", "max_length", 1, 1 << 24},
                                                {"resid_pdrop", "dropout", 0, 0, 0.1},
                                                {"attn_pdrop", "attention_dropout", 0, 0, 0.1},
                                                {"activation_function", "activation", 0, 0, "gelu_new"},
                                                {"layer_norm_epsilon", "epsilon", 0, 0, 1e-5}};

const MemberTable gpt2_table{
    .only = Json::parse(R"({"is_causal": true, "scale_attn_weights": true,
                            "scale_attn_by_inverse_layer_idx": false, "add_cross_attention": false})"),
    .read = "n_inner embd_pdrop",
    .without_effect =
        "n_ctx reorder_and_upcast_attn summary_type summary_use_proj summary_activation "
        "summary_proj_to_labels summary_first_dropout task_specific_params"};

const Json gpt2_settings = Json::parse(
    R"({"norm": "pre", "norm_kind": "layer", "positions": "learned", "output_cap": 0.0, "canon": 0})");

/// Returns the weight names of GPT-2. In models published with the head, they begin with
/// "transformer.", except for the head itself.
WeightNames gpt2_names(std::int64_t layers, std::string_view prefix) {
  const WeightLayout whole{.transposed = true};
  const auto third = [](std::int64_t part) {
    return WeightLayout{.transposed = true, .part = part, .parts = 3};
  };
  const MapName layer[] = {{"ln_1", "self_attention_norm"},
                           {"ln_2", "feed_forward_norm"},
                           {"attn.c_attn", "self_attention.query", true, third(0)},
                           {"attn.c_attn", "self_attention.key", true, third(1)},
                           {"attn.c_attn", "self_attention.value", true, third(2)},
                           {"attn.c_proj", "self_attention.output", true, whole},
                           {"mlp.c_fc", "feed_forward.input", true, whole},
                           {"mlp.c_proj", "feed_forward.output", true, whole}};
  WeightNames names;
  names.add("wte.weight", "embedding.weight");
  names.add("wpe.weight", "input.positions.weight");
  names.add_layers(layers, "h.{}.", "decoder.layers.{}.", layer);
  names.add_map({"ln_f", "decoder.norm"});
  names.add_prefix(prefix);
  return names;
}

ImportPlan import_gpt2(const Config& config, const Tensors& tensors) {
  const std::string prefix = prefix_of(tensors, "wte.weight"),
                    head = prefix_of(tensors, gpt2_head) + gpt2_head;
  config.check_rows("n_positions", tensors, prefix + "wpe.weight");
  config.check_rows("vocab_size", tensors, prefix + "wte.weight");
  Json model = config.model(gpt2_members);
  const auto width = model["width"].get<std::int64_t>();
  ImportPlan plan{
      "language_model", {}, gpt2_names(model["decoder_layers"], prefix), {".attn.bias", ".attn.masked_bias"}};
  const bool tied = ties_output(plan, config, tensors, head, prefix + "wte.weight");
  if (!tied) plan.names.add(head, "output.weight");
  model.update({{"feed_forward", config.has("n_inner") ? config.integer("n_inner", 1, 1 << 20) : 4 * width},
                {"tie_embeddings", tied ? "decoder" : "none"},
                {"scale_embeddings", false},
                {"attention_bias", true}});
  model.update(gpt2_settings);
  plan.settings["model"] = std::move(model);
  if (config.value("embd_pdrop", 0.1) != config.value("resid_pdrop", 0.1))
    plan.remarks.emplace_back("embd_pdrop differs from resid_pdrop, but model.dropout sets both");
  return plan;
}

bool is_gpt2(const RunContent& run) {
  return run.task == "language_model" && run.settings.value("objective", "causal") == "causal";
}

/// Exports a run as GPT-2. If embeddings are scaled, the output map is written separately,
/// unscaled, because GPT-2 does not scale.
ExportPlan export_gpt2(RunContent run) {
  const Json& model = run.settings.at("model");
  Json allowed = Json::parse(R"({"decoder_attention": ["dot_product"], "head_width": [0],
      "share_layers": ["none"], "embedding_norm": [false], "token_types": [0], "output_bias": [false]})");
  allowed["activation"] = classic_activations;
  check_fits("GPT-2", model, gpt2_settings, allowed);
  const NoGrad no_grad;
  const bool tied = fold_embedding_scale(run.weights, model);
  for (const char* const part : {".self_attention.", ".feed_forward."}) add_missing_biases(run.weights, part);
  Json config = published_members(model, gpt2_members);
  config.update({{"architectures", {"GPT2LMHeadModel"}},
                 {"model_type", "gpt2"},
                 {"n_inner", model.at("feed_forward")},
                 {"embd_pdrop", model.at("dropout")},
                 {"bos_token_id", run.begin >= 0 ? Json(run.begin) : Json()},
                 {"eos_token_id", published_ends(run)},
                 {"tie_word_embeddings", tied},
                 {"vocab_size", run.vocabulary}});
  WeightNames names = gpt2_names(model.at("decoder_layers"), "transformer.");
  if (!tied) names.add(gpt2_head, "output.weight");
  return {std::move(config), std::move(names), std::move(run.weights)};
}

}  // namespace

std::vector<Architecture> gpt2_architectures() {
  static constexpr std::string_view heads[] = {"LMHeadModel", "Model"};
  return {{"gpt2", "GPT-2", gpt2_members, &gpt2_table, import_gpt2, is_gpt2, export_gpt2, heads}};
}

}  // namespace heed::hub
