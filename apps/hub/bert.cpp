// BERT (Devlin et al. 2018, arXiv 1810.04805) as `transformers` writes it, and what is built like it
// (MiniLM): an encoder with norms behind its layers, a norm of the embeddings, and token types. With the head
// of its masked language model it becomes a run of that objective, else an encoder of sentences.

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"

namespace heed::hub {
namespace {

constexpr const char* bert_head = "cls.predictions.";

const std::vector<ConfigMember>& bert_members() {
  static const std::vector<ConfigMember> members = {
      {"hidden_size", "width", 1, 65536},
      {"num_attention_heads", "heads", 1, 1024},
      {"intermediate_size", "feed_forward", 1, 1 << 20},
      {"type_vocab_size", "token_types", 1, 65536},
      {"hidden_dropout_prob", "dropout", 0, 0, 0.1},
      {"attention_probs_dropout_prob", "attention_dropout", 0, 0, 0.1},
      {"hidden_act", "activation", 0, 0, "gelu"},
      {"layer_norm_eps", "epsilon", 0, 0, 1e-12}};
  return members;
}

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

ImportPlan import_bert(const Config& config, const Tensors& tensors) {
  config.expect("position_embedding_type", "absolute");
  config.expect("is_decoder", false);
  config.expect("add_cross_attention", false);
  const std::string prefix = prefix_of(tensors, "embeddings.word_embeddings.weight"),
                    head = prefix_of(tensors, "cls.predictions.bias") + bert_head,
                    embedding = prefix + "embeddings.word_embeddings.weight",
                    next_sentence =
                        prefix_of(tensors, "cls.seq_relationship.weight") + "cls.seq_relationship.";
  config.check_rows("max_position_embeddings", tensors, prefix + "embeddings.position_embeddings.weight");
  config.check_rows("vocab_size", tensors, embedding);
  const std::int64_t layers = config.integer("num_hidden_layers", 1, 1024),
                     length = config.integer("max_position_embeddings", 1, 1 << 24);
  Json model = config.model(bert_members());
  model.update({{"norm", "post"},
                {"positions", "learned"},
                {"embedding_norm", true},
                {"scale_embeddings", false},
                {"attention_bias", true}});
  ImportPlan plan{"embed_text",
                  {{"tokenizer", {{"begin", "[CLS]"}}}},
                  bert_names(layers, prefix),
                  {"embeddings.position_ids", prefix + "pooler.", next_sentence}};
  if (tensors.contains(head + "bias")) {
    const bool tied = ties_output(plan, config, tensors, head + "decoder.weight", embedding);
    model.update({{"decoder_layers", layers},
                  {"max_length", length},
                  {"tie_embeddings", tied ? "decoder" : "none"},
                  {"output_transform", true}});
    plan.task = "language_model";
    plan.settings["objective"] = "masked";
    plan.settings["training"]["batch_tokens"] = std::max<std::int64_t>(4096, length);
    add_bert_head(plan.names, head, tied);
    plan.copies.emplace_back(head + "decoder.bias", "output_bias");
    plan.remarks.emplace_back(
        "a masked language model: give --masked to a language_model that trains --from it");
  } else {
    model.update({{"encoder_layers", layers}, {"pooling", "mean"}});
    plan.settings["data"] = {{"max_tokens", length}, {"long_texts", "cut"}};
  }
  plan.settings["model"] = std::move(model);
  if (tensors.contains(prefix + "pooler.dense.weight"))
    plan.remarks.emplace_back("left out: the pooler, which nothing here reads");
  if (tensors.contains(next_sentence + "weight"))
    plan.remarks.emplace_back("left out: the map that tells next sentences, which nothing here reads");
  return plan;
}

bool is_bert(const RunContent& run) {
  return run.task == "embed_text" ||
         (run.task == "language_model" && run.settings.value("objective", "causal") == "masked");
}

ExportPlan export_bert(RunContent run) {
  const bool has_head = run.task == "language_model";
  const Json& model = run.settings.at("model");
  check_fits("BERT", model,
             {{"norm", {"post"}},
              {"norm_kind", {"layer"}},
              {"activation", classic_activations()},
              {"positions", {"learned"}},
              {has_head ? "decoder_attention" : "encoder_attention", {"dot_product"}},
              {"head_width", {0}},
              {"share_layers", {"none"}},
              {"embedding_norm", {true}},
              {"scale_embeddings", {false}},
              {"output_transform", {true}},
              {"local_width", {0}},
              {"pooling", {"mean"}}});
  const NoGrad no_grad;
  const auto layers = model.at(has_head ? "decoder_layers" : "encoder_layers").get<std::int64_t>();
  const bool tied = !has_head || model.at("tie_embeddings") != "none";
  if (!run.weights.contains("input.types.weight"))
    run.weights["input.types.weight"] = Tensor::zeros({1, model.at("width").get<std::int64_t>()});
  for (const char* const part : {".attention.", ".feed_forward."}) add_missing_biases(run.weights, part);
  Json config = published_members(model, bert_members());
  config.update({{"architectures", {has_head ? "BertForMaskedLM" : "BertModel"}},
                 {"model_type", "bert"},
                 {"max_position_embeddings", run.weights.at("input.positions.weight").size(0)},
                 {"num_hidden_layers", layers},
                 {"pad_token_id", std::max<std::int64_t>(run.pad, 0)},
                 {"tie_word_embeddings", tied},
                 {"type_vocab_size", run.weights.at("input.types.weight").size(0)},
                 {"vocab_size", run.vocabulary}});
  WeightNames names = bert_names(layers, has_head ? "bert." : "");
  if (has_head) add_bert_head(names, bert_head, tied);
  // A head that is not tied has a bias of its own, beside that of the layout.
  if (has_head && !tied) names.add(concat_text(bert_head, "decoder.bias"), "output_bias");
  return {std::move(config), std::move(names), std::move(run.weights)};
}

}  // namespace

const Architecture& bert_architecture() {
  static const Architecture architecture{"bert", "BERT", import_bert, is_bert, export_bert};
  return architecture;
}

}  // namespace heed::hub
