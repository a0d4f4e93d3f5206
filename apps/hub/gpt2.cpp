// GPT-2 (Radford et al. 2019) as `transformers` writes it: a decoder with norms before its layers,
// learned positions and the output map tied to the embedding. Its linear maps are "Conv1D", stored
// as [in, out]; query, key and value are joined in one.

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"

namespace heed::hub {
namespace {

constexpr const char* gpt2_head = "lm_head.weight";

const std::vector<ConfigMember>& gpt2_members() {
  static const std::vector<ConfigMember> members = {{"n_embd", "width", 1, 65536},
                                                    {"n_head", "heads", 1, 1024},
                                                    {"n_layer", "decoder_layers", 1, 1024},
                                                    {"n_positions", "max_length", 1, 1 << 24},
                                                    {"resid_pdrop", "dropout", 0, 0, 0.1},
                                                    {"attn_pdrop", "attention_dropout", 0, 0, 0.1},
                                                    {"activation_function", "activation", 0, 0, "gelu_new"},
                                                    {"layer_norm_epsilon", "epsilon", 0, 0, 1e-5}};
  return members;
}

const MemberTable& gpt2_table() {
  static const MemberTable table{.only = {{"is_causal", true},
                                          {"scale_attn_weights", true},
                                          {"scale_attn_by_inverse_layer_idx", false},
                                          {"add_cross_attention", false}},
                                 .read = "n_inner embd_pdrop",
                                 .without_effect =
                                     "n_ctx reorder_and_upcast_attn summary_type summary_use_proj "
                                     "summary_activation summary_proj_to_labels summary_first_dropout "
                                     "task_specific_params"};
  return table;
}

/// Returns the weight names of GPT-2. In models published with the head, they begin with
/// "transformer.", except for the head itself.
WeightNames gpt2_names(std::int64_t layers, std::string_view prefix) {
  WeightNames layer;
  layer.add_map("h.{}.ln_1", "decoder.layers.{}.self_attention_norm");
  layer.add_map("h.{}.ln_2", "decoder.layers.{}.feed_forward_norm");
  const char* const thirds[] = {"query", "key", "value"};
  for (std::int64_t i = 0; i < 3; ++i)
    layer.add_map("h.{}.attn.c_attn", concat_text("decoder.layers.{}.self_attention.", thirds[i]),
                  {.transposed = true, .part = i, .parts = 3});
  layer.add_map("h.{}.attn.c_proj", "decoder.layers.{}.self_attention.output", {.transposed = true});
  layer.add_map("h.{}.mlp.c_fc", "decoder.layers.{}.feed_forward.input", {.transposed = true});
  layer.add_map("h.{}.mlp.c_proj", "decoder.layers.{}.feed_forward.output", {.transposed = true});
  WeightNames names;
  names.add("wte.weight", "embedding.weight");
  names.add("wpe.weight", "input.positions.weight");
  names.add_layers(layers, layer);
  names.add_map("ln_f", "decoder.norm");
  names.add_prefix(prefix);
  return names;
}

ImportPlan import_gpt2(const Config& config, const Tensors& tensors) {
  const std::string prefix = prefix_of(tensors, "wte.weight"),
                    head = prefix_of(tensors, gpt2_head) + gpt2_head;
  config.check_rows("n_positions", tensors, prefix + "wpe.weight");
  config.check_rows("vocab_size", tensors, prefix + "wte.weight");
  Json model = config.model(gpt2_members());
  const auto width = model["width"].get<std::int64_t>();
  ImportPlan plan{
      "language_model", {}, gpt2_names(model["decoder_layers"], prefix), {".attn.bias", ".attn.masked_bias"}};
  const bool tied = ties_output(plan, config, tensors, head, prefix + "wte.weight");
  if (!tied) plan.names.add(head, "output.weight");
  model.update({{"feed_forward", config.has("n_inner") ? config.integer("n_inner", 1, 1 << 20) : 4 * width},
                {"norm", "pre"},
                {"norm_kind", "layer"},
                {"positions", "learned"},
                {"tie_embeddings", tied ? "decoder" : "none"},
                {"scale_embeddings", false},
                {"attention_bias", true}});
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
  check_fits("GPT-2", model,
             {{"norm", {"pre"}},
              {"norm_kind", {"layer"}},
              {"activation", classic_activations()},
              {"positions", {"learned"}},
              {"decoder_attention", {"dot_product"}},
              {"head_width", {0}},
              {"share_layers", {"none"}},
              {"embedding_norm", {false}},
              {"token_types", {0}},
              {"output_bias", {false}}});
  const NoGrad no_grad;
  const bool tied = fold_embedding_scale(run.weights, model);
  for (const char* const part : {".self_attention.", ".feed_forward."}) add_missing_biases(run.weights, part);
  Json config = published_members(model, gpt2_members());
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

const Architecture& gpt2_architecture() {
  static constexpr std::string_view heads[] = {"LMHeadModel", "Model"};
  static const Architecture architecture{"gpt2",      "GPT-2", gpt2_members, gpt2_table,
                                         import_gpt2, is_gpt2, export_gpt2,  heads};
  return architecture;
}

}  // namespace heed::hub
