// Marian's translation models as `transformers` writes them: an encoder-decoder with norms after
// its layers, one matrix for both embeddings and the output map, an output bias, and sinusoidal
// positions with all sines before the cosines. Outputs begin with a mark from the configuration;
// Marian's own models use the padding token.

#include <cmath>

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/positions.h"

namespace heed::hub {
namespace {

constexpr const char* marian_positions = "embed_positions.weight";

/// The members of config.json that heed reads. Members of encoder and decoder map to the same
/// settings, since heed's model has only one number of heads and one hidden width.
const std::vector<ConfigMember> marian_members = {{"d_model", "width", 1, 65536},
                                                  {"encoder_attention_heads", "heads", 1, 1024},
                                                  {"decoder_attention_heads", "heads", 1, 1024},
                                                  {"encoder_ffn_dim", "feed_forward", 1, 1 << 20},
                                                  {"decoder_ffn_dim", "feed_forward", 1, 1 << 20},
                                                  {"encoder_layers", "encoder_layers", 1, 1024},
                                                  {"decoder_layers", "decoder_layers", 1, 1024},
                                                  {"max_position_embeddings", "max_length", 1, 1 << 24},
                                                  {"dropout", "dropout", 0, 0, 0.1},
                                                  {"attention_dropout", "attention_dropout", 0, 0, 0.0},
                                                  {"activation_dropout", "activation_dropout", 0, 0, 0.0},
                                                  {"activation_function", "activation", 0, 0, "gelu"},
                                                  {"scale_embedding", "scale_embeddings", 0, 0, false}};

const MemberTable marian_table{
    .only = Json::parse(R"({"share_encoder_decoder_embeddings": true, "tie_word_embeddings": true,
        "is_encoder_decoder": true, "is_decoder": false, "normalize_before": false,
        "normalize_embedding": false, "add_final_layer_norm": false, "static_position_embeddings": true,
        "forced_bos_token_id": null})"),
    .read = "decoder_start_token_id decoder_vocab_size",
    .without_effect =
        "encoder_layerdrop decoder_layerdrop init_std forced_eos_token_id add_bias_logits classif_dropout "
        "classifier_dropout extra_pos_embeddings num_hidden_layers"};

const Json marian_settings = Json::parse(
    R"({"norm": "post", "tie_embeddings": "all", "epsilon": 1e-5, "output_cap": 0.0, "canon": 0})");

/// Adds the layers of one stack.
void add_marian_layers(WeightNames& names, std::int64_t layers, const std::string& stack) {
  std::vector<MapName> maps;
  const auto add_attention = [&](const std::string& published, const std::string& ours) {
    for (const auto& [theirs, map] :
         {std::pair{"q_proj", "query"}, {"k_proj", "key"}, {"v_proj", "value"}, {"out_proj", "output"}})
      maps.push_back({concat_text(published, '.', theirs), concat_text(ours, '.', map)});
    maps.push_back({published + "_layer_norm", ours + "_norm"});
  };
  add_attention("self_attn", stack == "decoder" ? "self_attention" : "attention");
  if (stack == "decoder") add_attention("encoder_attn", "cross_attention");
  maps.push_back({"fc1", "feed_forward.input"});
  maps.push_back({"fc2", "feed_forward.output"});
  maps.push_back({"final_layer_norm", "feed_forward_norm"});
  names.add_layers(layers, concat_text("model.", stack, ".layers.{}."), stack + ".layers.{}.", maps);
}

WeightNames marian_names(const Json& model) {
  WeightNames names;
  names.add("model.shared.weight", "embedding.weight");
  names.add("final_logits_bias", "output.bias", {.is_row = true});
  add_marian_layers(names, model.at("encoder_layers"), "encoder");
  add_marian_layers(names, model.at("decoder_layers"), "decoder");
  return names;
}

/// Checks that the sinusoids in the file equal heed's, up to the rounding of 16-bit numbers.
void check_positions(const Tensors& tensors, std::int64_t width) {
  constexpr double rounding = 0.005;
  for (const auto& [name, found] : tensors) {
    if (!name.ends_with(marian_positions)) continue;
    check(found.rank() == 2 && found.size(1) == width, "weight ", name, " has the shape ", found.shape(),
          ", not [positions, ", width, "]");
    Initialiser unused(0);
    Positions positions("sinusoidal_halves", 0, width, 0, unused);
    const Tensor table = cast(found, DType::f32);
    const std::vector<float> given = table.to_vector<float>(),
                             computed = contiguous(positions(0, table.size(0), table)).to_vector<float>();
    for (std::size_t i = 0; i < given.size(); ++i)
      check(std::abs(given[i] - computed[i]) <= rounding, "weight ", name, " holds ", given[i],
            " at element ", i, ", where the sinusoids that heed computes have ", computed[i]);
  }
}

ImportPlan import_marian(const Config& config, const Tensors& tensors) {
  const std::string prefix = prefix_of(tensors, "model.shared.weight");
  for (const char* const size : {"vocab_size", "decoder_vocab_size"})
    config.check_rows(size, tensors, prefix + "model.shared.weight");
  Json model = config.model(marian_members);
  check_positions(tensors, model["width"]);
  ImportPlan plan{"translate", {}, marian_names(model), {marian_positions}};
  plan.names.add_prefix(prefix);
  for (const char* const tied : {"coder.embed_tokens.weight", "lm_head.weight"})
    plan.copies.emplace_back(tied, "embedding.weight");
  model.update({{"positions", "sinusoidal_halves"}, {"output_bias", true}, {"attention_bias", true}});
  model.update(marian_settings);
  plan.settings["model"] = std::move(model);
  plan.begin = config.integer("decoder_start_token_id", 0, 1 << 30);
  if (config.has("eos_token_id")) plan.end = config.integer("eos_token_id", 0, 1 << 30);
  return plan;
}

bool is_marian(const RunContent& run) {
  const Json& model = run.settings.at("model");
  return model.contains("encoder_layers") && model.contains("decoder_layers");
}

/// Returns the axis of a weight along which the residual stream runs; -1: none.
int residual_axis(const std::string& name) {
  const auto ends = [&](std::string_view text) { return name.ends_with(text); };
  if (name == "embedding.weight") return 1;
  for (const char* const reader : {".query.weight", ".key.weight", ".value.weight", ".input.weight"})
    if (ends(reader)) return 1;
  if (ends(".output.weight") || ends(".output.bias") || ends("_norm.weight") || ends("_norm.bias")) return 0;
  return -1;
}

/// Reorders a stack so that it computes the same with all sines of the positions before all
/// cosines: the elements of the residual stream are permuted, and so is every weight that reads or
/// writes them.
void sort_sinusoids(Tensors& weights, std::int64_t width) {
  std::vector<std::int32_t> order;
  for (std::int64_t i = 0; i < width; i += 2) order.push_back(static_cast<std::int32_t>(i));
  for (std::int64_t i = 1; i < width; i += 2) order.push_back(static_cast<std::int32_t>(i));
  const Tensor ids = Tensor::from(order, {width});
  for (auto& [name, tensor] : weights) {
    const int axis = residual_axis(name);
    if (axis >= 0 && name != "output.bias") tensor = index_select(tensor, axis, ids);
  }
}

ExportPlan export_marian(RunContent run) {
  const Json& model = run.settings.at("model");
  Json allowed = Json::parse(R"({"norm_kind": ["layer"], "positions": ["sinusoidal", "sinusoidal_halves"],
      "encoder_attention": ["dot_product"], "decoder_attention": ["dot_product"],
      "cross_attention": ["dot_product"], "head_width": [0], "share_layers": ["none"],
      "embedding_norm": [false], "pointer": [false]})");
  allowed["activation"] = classic_activations;
  check_fits("Marian", model, marian_settings, allowed);
  const NoGrad no_grad;
  if (model.at("positions") == "sinusoidal") sort_sinusoids(run.weights, model.at("width"));
  if (!run.weights.contains("output.bias")) run.weights["output.bias"] = Tensor::zeros({run.vocabulary});
  for (const char* const part : {"attention.", ".feed_forward."}) add_missing_biases(run.weights, part);
  Json config = published_members(model, marian_members);
  config.update({{"architectures", {"MarianMTModel"}},
                 {"model_type", "marian"},
                 {"static_position_embeddings", true},
                 {"share_encoder_decoder_embeddings", true},
                 {"tie_word_embeddings", true},
                 {"is_encoder_decoder", true},
                 {"decoder_start_token_id", run.begin},
                 {"pad_token_id", run.pad >= 0 ? run.pad : run.begin},
                 {"bos_token_id", run.begin},
                 {"eos_token_id", run.end},
                 {"forced_eos_token_id", run.end},
                 {"vocab_size", run.vocabulary},
                 {"decoder_vocab_size", run.vocabulary}});
  return {std::move(config), marian_names(model), std::move(run.weights)};
}

}  // namespace

std::vector<Architecture> marian_architectures() {
  static constexpr std::string_view heads[] = {"MTModel", "Model"};
  return {
      {"marian", "Marian", marian_members, &marian_table, import_marian, is_marian, export_marian, heads}};
}

}  // namespace heed::hub
