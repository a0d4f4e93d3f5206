// BERT (Devlin et al. 2018, arXiv 1810.04805) as `transformers` writes it, and what is built like it
// (MiniLM): an encoder with norms behind its layers, a norm of the embeddings, and token types. With the head
// of its masked language model it becomes a run of that objective, else an encoder of sentences.

#include <nlohmann/json.hpp>

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"
#include "heed/base/json.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* bert_head = "cls.predictions.";

WeightNames bert_names(std::int64_t layers, std::string_view prefix) {
  WeightNames layer;
  for (const char* const map : {"query", "key", "value"})
    layer.add_map(concat_text("encoder.layer.{}.attention.self.", map),
                  concat_text("encoder.layers.{}.attention.", map));
  layer.add_map("encoder.layer.{}.attention.output.dense", "encoder.layers.{}.attention.output");
  layer.add_map("encoder.layer.{}.attention.output.LayerNorm", "encoder.layers.{}.attention_norm");
  layer.add_map("encoder.layer.{}.intermediate.dense", "encoder.layers.{}.feed_forward.input");
  layer.add_map("encoder.layer.{}.output.dense", "encoder.layers.{}.feed_forward.output");
  layer.add_map("encoder.layer.{}.output.LayerNorm", "encoder.layers.{}.feed_forward_norm");
  WeightNames names;
  names.add("embeddings.word_embeddings.weight", "embedding.weight");
  names.add("embeddings.position_embeddings.weight", "input.positions.weight");
  names.add("embeddings.token_type_embeddings.weight", "input.types.weight");
  names.add_map("embeddings.LayerNorm", "input.norm");
  names.add_layers(layers, layer);
  names.add_prefix(prefix);
  return names;
}

/// The map of the head is the embedding, if the two are tied.
void add_bert_head(WeightNames& names, const std::string& head, bool tied) {
  names.add(head + "bias", "output_bias");
  names.add_map(head + "transform.dense", "transform");
  names.add_map(head + "transform.LayerNorm", "transform_norm");
  if (!tied) names.add(head + "decoder.weight", "output.weight");
}

ImportPlan import_bert(const std::string& text, const std::map<std::string, Tensor>& tensors) {
  const ConfigReader config(text, "BERT");
  config.expect("position_embedding_type", "\"absolute\"");
  config.expect("is_decoder", "false");
  config.expect("add_cross_attention", "false");
  const std::string prefix = prefix_of(tensors, "embeddings.word_embeddings.weight"),
                    head = prefix_of(tensors, "cls.predictions.bias") + bert_head;
  const bool has_head = tensors.contains(head + "bias");
  const std::int64_t width = config.integer("hidden_size", 1, 65536),
                     heads = config.integer("num_attention_heads", 1, 1024),
                     layers = config.integer("num_hidden_layers", 1, 1024),
                     length = config.integer("max_position_embeddings", 1, 1 << 24);
  config.check_heads(width, heads);
  config.check_rows("max_position_embeddings", tensors, prefix + "embeddings.position_embeddings.weight");
  config.check_rows("vocab_size", tensors, prefix + "embeddings.word_embeddings.weight");
  const std::string map = head + "decoder.weight";
  const bool said_to_be_tied = config.flag("tie_word_embeddings", true),
             tied =
                 said_to_be_tied && !differs_from(tensors, map, prefix + "embeddings.word_embeddings.weight");
  Json model = {{"width", width},
                {"heads", heads},
                {"feed_forward", config.integer("intermediate_size", 1, 1 << 20)},
                {"dropout", config.number("hidden_dropout_prob", 0.1)},
                {"attention_dropout", config.number("attention_probs_dropout_prob", 0.1)},
                {"activation", config.activation("hidden_act", "gelu")},
                {"norm", "post"},
                {"positions", "learned"},
                {"embedding_norm", true},
                {"token_types", config.integer("type_vocab_size", 1, 65536)},
                {"scale_embeddings", false},
                {"attention_bias", true},
                {"epsilon", config.number("layer_norm_eps", 1e-12)}};
  Json settings = {{"tokenizer", {{"begin", "[CLS]"}}}};
  if (has_head) {
    model.update({{"decoder_layers", layers},
                  {"max_length", length},
                  {"tie_embeddings", tied ? "decoder" : "none"},
                  {"output_transform", true}});
    settings["objective"] = "masked";
    settings["training"] = {{"batch_tokens", std::max<std::int64_t>(4096, length)}};
  } else {
    model.update({{"encoder_layers", layers}, {"pooling", "mean"}});
    settings["data"] = {{"max_tokens", length}, {"long_texts", "cut"}};
  }
  settings["model"] = std::move(model);
  const std::string next_sentence =
      prefix_of(tensors, "cls.seq_relationship.weight") + "cls.seq_relationship.";
  ImportPlan plan{has_head ? "language_model" : "embed_text",
                  settings.dump(),
                  bert_names(layers, prefix),
                  {"embeddings.position_ids", prefix + "pooler.", next_sentence}};
  if (has_head) {
    add_bert_head(plan.names, head, tied);
    if (tied) plan.copies.emplace_back(map, "embedding.weight");
    if (said_to_be_tied && !tied) plan.remarks.push_back(not_tied(map));
    plan.copies.emplace_back(head + "decoder.bias", "output_bias");
    plan.remarks.emplace_back(
        "a masked language model: give --masked to a language_model that trains --from it");
  }
  if (tensors.contains(prefix + "pooler.dense.weight"))
    plan.remarks.emplace_back("left out: the pooler, which nothing here reads");
  if (tensors.contains(next_sentence + "weight"))
    plan.remarks.emplace_back("left out: the map that tells next sentences, which nothing here reads");
  return plan;
}

bool is_bert(const RunContent& run) {
  return run.task == "embed_text" ||
         (run.task == "language_model" && Json::parse(run.settings).value("objective", "causal") == "masked");
}

ExportPlan export_bert(RunContent run) {
  const bool has_head = run.task == "language_model";
  Misfits misfits(run.settings);
  misfits.expect("model.norm", {"\"post\""});
  misfits.expect_classic_layers();
  misfits.expect("model.positions", {"\"learned\""});
  misfits.expect(has_head ? "model.decoder_attention" : "model.encoder_attention", {"\"dot_product\""});
  misfits.expect("model.share_layers", {"\"none\""});
  misfits.expect("model.embedding_norm", {"true"});
  misfits.expect("model.scale_embeddings", {"false"});
  if (has_head) {
    misfits.expect("model.output_transform", {"true"});
  } else {
    misfits.expect("model.local_width", {"0"});
    misfits.expect("model.pooling", {"\"mean\""});
  }
  misfits.check_none("BERT");
  const NoGrad no_grad;
  const Json model = Json::parse(run.settings).at("model");
  const auto width = model.at("width").get<std::int64_t>();
  const auto layers = model.at(has_head ? "decoder_layers" : "encoder_layers").get<std::int64_t>();
  const bool tied = !has_head || model.at("tie_embeddings") != "none";
  if (!run.weights.contains("input.types.weight"))
    run.weights["input.types.weight"] = Tensor::zeros({1, width});
  add_missing_biases(run.weights, ".attention.");
  const Json config = {{"architectures", {has_head ? "BertForMaskedLM" : "BertModel"}},
                       {"model_type", "bert"},
                       {"hidden_act", published_activation(model.at("activation").get<std::string>())},
                       {"hidden_dropout_prob", model.at("dropout")},
                       {"attention_probs_dropout_prob", model.at("attention_dropout")},
                       {"hidden_size", width},
                       {"intermediate_size", model.at("feed_forward")},
                       {"layer_norm_eps", model.at("epsilon")},
                       {"max_position_embeddings", run.weights.at("input.positions.weight").size(0)},
                       {"num_attention_heads", model.at("heads")},
                       {"num_hidden_layers", layers},
                       {"pad_token_id", std::max<std::int64_t>(run.pad, 0)},
                       {"tie_word_embeddings", tied},
                       {"type_vocab_size", run.weights.at("input.types.weight").size(0)},
                       {"vocab_size", run.vocabulary}};
  WeightNames names = bert_names(layers, has_head ? "bert." : "");
  if (has_head) add_bert_head(names, bert_head, tied);
  // A head that is not tied has a bias of its own, beside that of the layout.
  if (has_head && !tied) names.add(concat_text(bert_head, "decoder.bias"), "output_bias");
  return {config.dump(2) + "\n", std::move(names), std::move(run.weights)};
}

}  // namespace

const Architecture& bert_architecture() {
  static const Architecture architecture{"bert", "BERT", import_bert, is_bert, export_bert};
  return architecture;
}

}  // namespace heed
