// GPT-2 (Radford et al. 2019) as `transformers` writes it: a decoder with norms before its layers, learned
// positions and the output map tied to the embedding. Its linear maps are "Conv1D", stored [in, out]; query,
// key and value are one.

#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/json.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_positions_of_gpt2 = 1 << 24;
constexpr const char* gpt2_head = "lm_head.weight";

WeightNames gpt2_names(std::int64_t layers) {
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
  return names;
}

/// Published with the head the stack's names begin with "transformer.", but for the head itself.
WeightNames gpt2_names_with_prefix(std::int64_t layers, bool tied, std::string_view prefix,
                                   const std::string& head) {
  WeightNames names = gpt2_names(layers);
  names.add_prefix(prefix);
  if (!tied) names.add(head, "output.weight");
  return names;
}

ImportPlan import_gpt2(const std::string& text, const std::map<std::string, Tensor>& tensors) {
  const ConfigReader config(text, "GPT-2");
  config.expect("scale_attn_weights", "true");
  config.expect("scale_attn_by_inverse_layer_idx", "false");
  config.expect("add_cross_attention", "false");
  const std::int64_t width = config.integer("n_embd", 1, 65536), heads = config.integer("n_head", 1, 1024),
                     layers = config.integer("n_layer", 1, 1024);
  config.check_heads(width, heads);
  const std::string prefix = prefix_of(tensors, "wte.weight"),
                    head = prefix_of(tensors, gpt2_head) + gpt2_head;
  config.check_rows("n_positions", tensors, prefix + "wpe.weight");
  config.check_rows("vocab_size", tensors, prefix + "wte.weight");
  const bool said_to_be_tied = config.flag("tie_word_embeddings", true),
             tied = said_to_be_tied && !differs_from(tensors, head, prefix + "wte.weight");
  const std::int64_t length = config.integer("n_positions", 1, most_positions_of_gpt2);
  const Json settings = {
      {"model",
       {{"width", width},
        {"heads", heads},
        {"feed_forward", config.has("n_inner") ? config.integer("n_inner", 1, 1 << 20) : 4 * width},
        {"decoder_layers", layers},
        {"max_length", length},
        {"dropout", config.number("resid_pdrop", 0.1)},
        {"attention_dropout", config.number("attn_pdrop", 0.1)},
        {"activation", config.activation("activation_function", "gelu_new")},
        {"norm", "pre"},
        {"positions", "learned"},
        {"tie_embeddings", tied ? "decoder" : "none"},
        {"scale_embeddings", false},
        {"attention_bias", true},
        {"epsilon", config.number("layer_norm_epsilon", 1e-5)}}},
      {"training", {{"batch_tokens", std::max<std::int64_t>(4096, length)}}}};
  ImportPlan plan{"language_model",
                  settings.dump(),
                  gpt2_names_with_prefix(layers, tied, prefix, head),
                  {".attn.bias", ".attn.masked_bias"}};
  if (tied) plan.copies.emplace_back(head, "embedding.weight");
  if (said_to_be_tied && !tied) plan.remarks.push_back(not_tied(head));
  if (config.number("embd_pdrop", 0.1) != config.number("resid_pdrop", 0.1))
    plan.remarks.emplace_back("embd_pdrop differs from resid_pdrop, which model.dropout takes for both");
  return plan;
}

bool is_gpt2(const RunContent& run) {
  return run.task == "language_model" && Json::parse(run.settings).value("objective", "causal") == "causal";
}

/// With scaled embeddings the output map is written apart, unscaled: GPT-2 does not scale.
ExportPlan export_gpt2(RunContent run) {
  Misfits misfits(run.settings);
  misfits.expect("model.norm", {"\"pre\""});
  misfits.expect_classic_layers();
  misfits.expect("model.positions", {"\"learned\""});
  misfits.expect("model.decoder_attention", {"\"dot_product\""});
  misfits.expect("model.share_layers", {"\"none\""});
  misfits.expect("model.embedding_norm", {"false"});
  misfits.expect("model.token_types", {"0"});
  misfits.expect("model.output_bias", {"false"});
  misfits.check_none("GPT-2");
  const NoGrad no_grad;
  const Json model = Json::parse(run.settings).at("model");
  const auto width = model.at("width").get<std::int64_t>(),
             layers = model.at("decoder_layers").get<std::int64_t>();
  bool tied = model.at("tie_embeddings") != "none";
  if (model.at("scale_embeddings").get<bool>()) {
    Tensor& embedding = run.weights.at("embedding.weight");
    if (tied) run.weights["output.weight"] = embedding;
    embedding = embedding * std::sqrt(static_cast<double>(width));
    tied = false;
  }
  add_missing_biases(run.weights, ".self_attention.");
  const Json config = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"activation_function", published_activation(model.at("activation").get<std::string>())},
      {"attn_pdrop", model.at("attention_dropout")},
      {"embd_pdrop", model.at("dropout")},
      {"resid_pdrop", model.at("dropout")},
      {"bos_token_id", run.end},
      {"eos_token_id", run.end},
      {"layer_norm_epsilon", model.at("epsilon")},
      {"n_embd", width},
      {"n_head", model.at("heads")},
      {"n_inner", model.at("feed_forward")},
      {"n_layer", layers},
      {"n_positions", model.at("max_length")},
      {"tie_word_embeddings", tied},
      {"vocab_size", run.vocabulary}};
  return {config.dump(2) + "\n", gpt2_names_with_prefix(layers, tied, "transformer.", gpt2_head),
          std::move(run.weights)};
}

}  // namespace

const Architecture& gpt2_architecture() {
  static const Architecture architecture{"gpt2", "GPT-2", import_gpt2, is_gpt2, export_gpt2};
  return architecture;
}

}  // namespace heed
