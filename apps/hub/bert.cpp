// BERT (Devlin et al. 2018, arXiv 1810.04805) as `transformers` writes it, and similar models:
// MiniLM; RoBERTa (Liu et al. 2019, arXiv 1907.11692) and XLM-RoBERTa, whose positions begin after
// the padding position; DistilBERT (Sanh et al. 2019, arXiv 1910.01108), without token types. All
// are encoders with norms after their layers and a norm of the embeddings. With the head of a
// masked language model it becomes a masked language_model run, with a classification head a
// classifier, with one output a run of `rate`, with a head for each token a run of `tag`, otherwise
// a sentence encoder.
//
// ELECTRA (Clark et al. 2020, arXiv 2003.10555) has other heads. MPNet (Song et al. 2020, arXiv
// 2004.09297) adds biases of distances, one table for all layers, which here are copies that
// fine-tuning may change apart.

#include <algorithm>

#include "heed/apps/hub/architecture.h"
#include "heed/autograd/autograd.h"

namespace heed::hub {
namespace {

const std::vector<ConfigMember> bert_members = {
    {"hidden_size", "width", 1, 65536},
    {"num_attention_heads", "heads", 1, 1024},
    {"intermediate_size", "feed_forward", 1, 1 << 20},
    {"type_vocab_size", "token_types", 1, 65536},
    {"hidden_dropout_prob", "dropout", 0, 0, 0.1},
    {"attention_probs_dropout_prob", "attention_dropout", 0, 0, 0.1},
    {"hidden_act", "activation", 0, 0, "gelu"},
    {"layer_norm_eps", "epsilon", 0, 0, 1e-12}};

const std::vector<ConfigMember> mpnet_members = [] {
  std::vector<ConfigMember> members = bert_members;
  std::erase_if(members, [](const ConfigMember& one) { return one.ours == std::string_view("token_types"); });
  return members;
}();

const std::vector<ConfigMember> distilbert_members = {{"dim", "width", 1, 65536},
                                                      {"n_heads", "heads", 1, 1024},
                                                      {"hidden_dim", "feed_forward", 1, 1 << 20},
                                                      {"dropout", "dropout", 0, 0, 0.1},
                                                      {"attention_dropout", "attention_dropout", 0, 0, 0.1},
                                                      {"activation", "activation", 0, 0, "gelu"}};

/// The table of all encoders in this file: they read the same, under different names.
const MemberTable encoder_table{
    .only = Json::parse(
        R"({"position_embedding_type": "absolute", "is_decoder": false, "add_cross_attention": false,
            "relative_attention_num_buckets": 32})"),
    .read =
        "num_hidden_layers n_layers max_position_embeddings pad_token_id id2label problem_type "
        "embedding_size",
    .without_effect =
        "summary_type summary_use_proj summary_activation summary_last_dropout classifier_dropout qa_dropout "
        "seq_classif_dropout sinusoidal_pos_embds tie_weights_ output_past "
        "directionality"};

const Json encoder_settings = Json::parse(R"({"norm": "post", "norm_kind": "layer", "positions": "learned",
                                              "embedding_norm": true, "scale_embeddings": false})");

const std::vector<MapName> bert_maps = {
    {"attention.self.query", "attention.query"},      {"attention.self.key", "attention.key"},
    {"attention.self.value", "attention.value"},      {"attention.output.dense", "attention.output"},
    {"attention.output.LayerNorm", "attention_norm"}, {"intermediate.dense", "feed_forward.input"},
    {"output.dense", "feed_forward.output"},          {"output.LayerNorm", "feed_forward_norm"}};

/// The differences of an encoder in this file from BERT. The names of their weights follow a prefix.
struct EncoderKind {
  const char* begin;  ///< the mark before every text
  std::span<const ConfigMember> members = bert_members;
  const char* layers = "num_hidden_layers";          ///< the member of config.json that counts them
  const char* layer = "encoder.layer.{}.";           ///< the prefix of a layer's weights
  std::vector<MapName> maps = bert_maps;             ///< of a layer
  bool has_types = true, offsets_positions = false;  ///< the first position is pad_token_id + 1
  bool has_distances = false;                        ///< biases of distances (MPNet)
  /// Names of the masked-language-model head: "transform", its norm, the map to the tokens and its
  /// bias.
  const char *transform, *transform_norm, *decoder, *bias, *copy_of_bias = nullptr;
  /// Names of the classification head: the map after pooling, its activation, and the map to the
  /// classes.
  const char *pooler, *pooler_activation = "tanh", *classes = "classifier";
};

WeightNames encoder_names(const EncoderKind& kind, std::int64_t layers, std::int64_t first_position) {
  WeightNames names;
  names.add("embeddings.word_embeddings.weight", "embedding.weight");
  names.add("embeddings.position_embeddings.weight", "input.positions.weight", {.first_row = first_position});
  if (kind.has_types) names.add("embeddings.token_type_embeddings.weight", "input.types.weight");
  names.add_map({"embeddings.LayerNorm", "input.norm"});
  names.add_layers(layers, kind.layer, "encoder.layers.{}.", kind.maps);
  for (std::int64_t i = 0; kind.has_distances && i < layers; ++i)
    names.add("encoder.relative_attention_bias.weight",
              concat_text("encoder.layers.", i, ".attention.relative.weight"));
  return names;
}

const EncoderKind bert_kind = {.begin = "[CLS]",
                               .transform = "cls.predictions.transform.dense",
                               .transform_norm = "cls.predictions.transform.LayerNorm",
                               .decoder = "cls.predictions.decoder.weight",
                               .bias = "cls.predictions.bias",
                               .copy_of_bias = "cls.predictions.decoder.bias",
                               .pooler = "pooler.dense"};

const EncoderKind roberta_kind = {.begin = "<s>",
                                  .offsets_positions = true,
                                  .transform = "lm_head.dense",
                                  .transform_norm = "lm_head.layer_norm",
                                  .decoder = "lm_head.decoder.weight",
                                  .bias = "lm_head.bias",
                                  .copy_of_bias = "lm_head.decoder.bias",
                                  .pooler = "classifier.dense",
                                  .classes = "classifier.out_proj"};

const EncoderKind electra_kind = {.begin = "[CLS]",
                                  .transform = "generator_predictions.dense",
                                  .transform_norm = "generator_predictions.LayerNorm",
                                  .decoder = "generator_lm_head.weight",
                                  .bias = "generator_lm_head.bias",
                                  .pooler = "classifier.dense",
                                  .pooler_activation = "gelu",
                                  .classes = "classifier.out_proj"};

const EncoderKind mpnet_kind = [] {
  EncoderKind kind = roberta_kind;
  kind.members = mpnet_members;
  kind.maps = {{"attention.attn.q", "attention.query"},   {"attention.attn.k", "attention.key"},
               {"attention.attn.v", "attention.value"},   {"attention.attn.o", "attention.output"},
               {"attention.LayerNorm", "attention_norm"}, {"intermediate.dense", "feed_forward.input"},
               {"output.dense", "feed_forward.output"},   {"output.LayerNorm", "feed_forward_norm"}};
  kind.has_types = false;
  kind.has_distances = true;
  return kind;
}();

const EncoderKind distilbert_kind = {.begin = "[CLS]",
                                     .members = distilbert_members,
                                     .layers = "n_layers",
                                     .layer = "transformer.layer.{}.",
                                     .maps = {{"attention.q_lin", "attention.query"},
                                              {"attention.k_lin", "attention.key"},
                                              {"attention.v_lin", "attention.value"},
                                              {"attention.out_lin", "attention.output"},
                                              {"sa_layer_norm", "attention_norm"},
                                              {"ffn.lin1", "feed_forward.input"},
                                              {"ffn.lin2", "feed_forward.output"},
                                              {"output_layer_norm", "feed_forward_norm"}},
                                     .has_types = false,
                                     .transform = "vocab_transform",
                                     .transform_norm = "vocab_layer_norm",
                                     .decoder = "vocab_projector.weight",
                                     .bias = "vocab_projector.bias",
                                     .pooler = "pre_classifier",
                                     .pooler_activation = "relu"};

/// Returns the names of the classes, in the order of the outputs.
std::vector<std::string> published_labels(const Config& config, std::int64_t count) {
  const Config names = config.part("id2label");
  check(!names.has(std::to_string(count).c_str()), "config.json: \"id2label\" names more classes than the ",
        count, " outputs");
  std::vector<std::string> labels;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    labels.push_back(names.value(number.c_str(), "LABEL_" + number));
  }
  return labels;
}

/// Adds "map.weight" and "map.bias" with their prefix in the file.
void add_found(WeightNames& names, const Tensors& tensors, const std::string& map, const std::string& ours) {
  names.add_map({prefix_of(tensors, map + ".weight") + map, ours});
}

constexpr const char* one_label = "single_label_classification";
constexpr const char* several_labels = "multi_label_classification";

/// Returns the separator of labels for a model whose texts may have several; "": they have one.
std::string separator_of_labels(const Config& config, const std::vector<std::string>& labels) {
  const std::string kind = config.value("problem_type", one_label);
  if (kind != several_labels) config.expect("problem_type", one_label);
  if (kind == one_label) return "";
  const auto is_free = [&](const std::string& separator) {
    return std::ranges::none_of(labels,
                                [&](const std::string& one) { return one.find(separator) != one.npos; });
  };
  for (const char* const separator : {"|", ",", ";", "||", ";;"})
    if (is_free(separator)) return separator;
  fail("config.json: the names of the classes hold every separator of labels: |, comma and ;");
}

/// Imports the classification head, which reads the first token, in BERT through the pooler.
void import_classes(ImportPlan& plan, const EncoderKind& kind, const Config& config, const Tensors& tensors,
                    Json& model) {
  const std::string weight =
      concat_text(prefix_of(tensors, concat_text(kind.classes, ".weight")), kind.classes, ".weight");
  const auto found = tensors.find(weight);
  check(found != tensors.end() && found->second.rank() == 2,
        "config.json describes a classifier, but there is no weight ", weight);
  const std::int64_t outputs = found->second.size(0);
  plan.task = outputs == 1 ? "rate" : "classify";
  if (outputs == 1) {
    config.expect("problem_type", "regression");
    plan.remarks.emplace_back("answers are the model's output itself, without a sigmoid");
  } else {
    plan.labels = published_labels(config, outputs);
    plan.settings["data"]["label_separator"] = separator_of_labels(config, plan.labels);
  }
  add_found(plan.names, tensors, kind.pooler, "pooler");
  add_found(plan.names, tensors, kind.classes, "output");
  model.update(Json::parse(R"({"pooling": "first", "local_width": 0, "sparse_features": 0,
                               "word_dropout": 0.0, "embedding_deviation": 0.0})"));
  model["pooler"] = kind.pooler_activation;
}

/// Imports the head that labels words.
void import_labels(ImportPlan& plan, const Config& config, const Tensors& tensors, Json& model) {
  const std::string weight = concat_text(prefix_of(tensors, "classifier.weight"), "classifier.weight");
  const auto found = tensors.find(weight);
  check(found != tensors.end() && found->second.rank() == 2,
        "config.json describes a model that labels words, but there is no weight ", weight);
  plan.task = "tag";
  plan.labels = published_labels(config, found->second.size(0));
  add_found(plan.names, tensors, "classifier", "output");
  model.update(Json::parse(R"({"local_width": 0, "sparse_features": 0, "word_dropout": 0.0,
                               "embedding_deviation": 0.0})"));
}

/// Imports the masked-language-model head. Its map is the embedding if the two are tied.
void import_masked_head(ImportPlan& plan, const EncoderKind& kind, const Config& config,
                        const Tensors& tensors, const std::string& embedding, std::int64_t length,
                        Json& model) {
  const std::string before = prefix_of(tensors, kind.bias);
  const bool tied = ties_output(plan, config, tensors, before + kind.decoder, embedding);
  plan.names.add(before + kind.bias, "output_bias");
  plan.names.add_map({before + kind.transform, "transform"});
  plan.names.add_map({before + kind.transform_norm, "transform_norm"});
  if (!tied) plan.names.add(before + kind.decoder, "output.weight");
  if (kind.copy_of_bias) plan.copies.emplace_back(before + kind.copy_of_bias, "output_bias");
  model.update({{"decoder_layers", model["encoder_layers"]},
                {"max_length", length},
                {"tie_embeddings", tied ? "decoder" : "none"},
                {"output_transform", true}});
  if (model.contains("encoder_attention")) model["decoder_attention"] = model["encoder_attention"];
  model.erase("encoder_attention");
  model.erase("encoder_layers");
  plan.task = "language_model";
  plan.settings["objective"] = "masked";
  plan.remarks.emplace_back("a masked language model: train a language_model from it with objective=masked");
}

ImportPlan import_encoder(const EncoderKind& kind, const Config& config, const Tensors& tensors) {
  const std::string prefix = prefix_of(tensors, "embeddings.word_embeddings.weight"),
                    embedding = prefix + "embeddings.word_embeddings.weight",
                    next_sentence =
                        prefix_of(tensors, "cls.seq_relationship.weight") + "cls.seq_relationship.";
  config.check_rows("max_position_embeddings", tensors, prefix + "embeddings.position_embeddings.weight");
  config.check_rows("vocab_size", tensors, embedding);
  if (config.type() == "electra") config.expect("embedding_size", config.integer("hidden_size", 1, 65536));
  const std::int64_t layers = config.integer(kind.layers, 1, 1024),
                     length_of_table = config.integer("max_position_embeddings", 1, 1 << 24);
  std::int64_t first = 0;  // RoBERTa's positions begin behind the padding token's id
  if (kind.offsets_positions)
    first = 1 + (config.has("pad_token_id") ? config.integer("pad_token_id", 0, 1 << 24) : 1);
  const std::int64_t length = length_of_table - first;
  check(length > 0, "config.json: \"max_position_embeddings\" is ", length + first, ", of which ", first,
        " stand before those of texts");
  Json model = config.model(kind.members);
  if (!model.contains("epsilon")) model["epsilon"] = 1e-12;  // DistilBERT's
  model.update({{"encoder_layers", layers}, {"attention_bias", true}});
  model.update(encoder_settings);
  if (kind.has_distances) model["encoder_attention"] = {{"name", "dot_product"}, {"relative", true}};
  ImportPlan plan{"embed_text",
                  {{"tokenizer", {{"begin", kind.begin}}}},
                  encoder_names(kind, layers, first),
                  {"embeddings.position_ids", next_sentence, "discriminator_predictions."}};
  plan.names.add_prefix(prefix);
  const bool has_pooler = tensors.contains(prefix + "pooler.dense.weight");
  if (config.is_of("ForSequenceClassification"))
    import_classes(plan, kind, config, tensors, model);
  else if (config.is_of("ForTokenClassification"))
    import_labels(plan, config, tensors, model);
  else if (tensors.contains(prefix_of(tensors, kind.bias) + kind.bias))
    import_masked_head(plan, kind, config, tensors, embedding, length, model);
  else
    model["pooling"] = "mean";
  const bool reads_pooler = !plan.settings.contains("objective") && plan.task != "embed_text" &&
                            plan.task != "tag" && std::string_view(kind.pooler) == "pooler.dense";
  if (!reads_pooler) plan.unused.push_back(prefix + "pooler.");
  if (plan.task != "language_model") plan.settings["data"]["max_tokens"] = length;
  if (plan.task != "language_model" && plan.task != "tag") plan.settings["data"]["long_texts"] = "cut";
  plan.settings["model"] = std::move(model);
  if (has_pooler && !reads_pooler) plan.remarks.emplace_back("left out: the pooler, which heed does not use");
  if (tensors.contains(next_sentence + "weight"))
    plan.remarks.emplace_back("left out: the next-sentence head, which heed does not use");
  return plan;
}

bool is_bert(const RunContent& run) {
  return run.task == "embed_text" || run.task == "classify" || run.task == "rate" || run.task == "tag" ||
         (run.task == "language_model" && run.settings.value("objective", "causal") == "masked");
}

/// Returns the files that sentence-transformers reads beside a sentence encoder.
std::map<std::string, Json> sentence_files(const Json& settings) {
  const std::string prompt = settings.at("tokenizer").at("prompt"),
                    pooling = settings.at("model").at("pooling"), pooler = settings.at("model").at("pooler");
  Json modules = Json::array();
  const auto add = [&](const char* path, const char* type) {
    modules.push_back({{"idx", modules.size()},
                       {"name", std::to_string(modules.size())},
                       {"path", path},
                       {"type", concat_text("sentence_transformers.models.", type)}});
  };
  add("", "Transformer");
  add("1_Pooling", "Pooling");
  if (pooler != "none") add("2_Dense", "Dense");
  if (settings.at("prediction").at("normalise")) add("3_Normalize", "Normalize");
  Json modes = {{"word_embedding_dimension", settings.at("model").at("width")}};
  for (const auto& [published, ours] : sentence_poolings) modes[published] = pooling == ours;
  return {{"modules.json", modules},
          {"1_Pooling/config.json", modes},
          {"sentence_bert_config.json",
           {{"max_seq_length", settings.at("data").at("max_tokens")}, {"do_lower_case", false}}},
          {"config_sentence_transformers.json",
           {{"prompts", {{"default", prompt}}},
            {"default_prompt_name", prompt.empty() ? Json() : Json("default")}}}};
}

/// Moves the pooler of a sentence encoder to a module of its own.
void publish_dense(const Json& model, ExportPlan& plan) {
  const std::string pooler = model.at("pooler");
  const std::int64_t width = model.at("width"), out = model.at("pooler_width");
  const auto* const activation =
      std::ranges::find(dense_activations, pooler, [](const auto& pair) { return pair.second; });
  plan.beside["2_Dense/config.json"] = {{"in_features", width},
                                        {"out_features", out > 0 ? out : width},
                                        {"bias", true},
                                        {"activation_function", activation->first}};
  for (const char* const name : {"weight", "bias"})
    plan.dense[concat_text("linear.", name)] = plan.weights.extract(concat_text("pooler.", name)).mapped();
}

/// Exports a run as BERT, including runs imported from RoBERTa and DistilBERT, since BERT computes
/// the same.
ExportPlan export_bert(RunContent run) {
  const bool has_head = run.task == "language_model",
             has_classes = run.task == "classify" || run.task == "rate",
             has_vectors = run.task == "embed_text", has_labels = run.task == "tag";
  const Json& model = run.settings.at("model");
  Json allowed = Json::parse(R"({"head_width": [0], "share_layers": ["none"], "output_transform": [true],
      "local_width": [0], "sparse_features": [0], "output_cap": [0.0], "canon": [0], "pooling": ["mean", "first", "max", "last", "weighted"]})");
  if (has_classes) allowed.update({{"pooling", Json::array({"first"})}, {"pooler", Json::array({"tanh"})}});
  allowed["activation"] = classic_activations;
  allowed[has_head ? "decoder_attention" : "encoder_attention"] = Json::array({"dot_product"});
  check_fits("BERT", model, encoder_settings, allowed,
             has_classes ? "; training.exportable trains one that fits" : "");
  const NoGrad no_grad;
  const auto layers = model.at(has_head ? "decoder_layers" : "encoder_layers").get<std::int64_t>();
  const bool tied = !has_head || model.at("tie_embeddings") != "none";
  if (!run.weights.contains("input.types.weight"))
    run.weights["input.types.weight"] = Tensor::zeros({1, model.at("width").get<std::int64_t>()});
  if (Tensor& types = run.weights.at("input.types.weight"); types.size(0) == 1)  // tools expect two
    types = concat({types, types}, 0);
  for (const char* const part : {".attention.", ".feed_forward."}) add_missing_biases(run.weights, part);
  Json members = model;
  members["token_types"] = run.weights.at("input.types.weight").size(0);
  Json config = published_members(members, bert_members);
  config.update({{"architectures",
                  {has_head      ? "BertForMaskedLM"
                   : has_classes ? "BertForSequenceClassification"
                   : has_labels  ? "BertForTokenClassification"
                                 : "BertModel"}},
                 {"model_type", "bert"},
                 {"max_position_embeddings", run.weights.at("input.positions.weight").size(0)},
                 {"num_hidden_layers", layers},
                 {"pad_token_id", std::max<std::int64_t>(run.pad, 0)},
                 {"tie_word_embeddings", tied},
                 {"vocab_size", run.vocabulary}});
  WeightNames names = encoder_names(bert_kind, layers, 0);
  if (has_classes) names.add_map({"pooler.dense", "pooler"});
  names.add_prefix(has_vectors ? "" : "bert.");
  if (has_classes || has_labels) {
    names.add_map({"classifier", "output"});
    if (run.task == "rate") {
      config["problem_type"] = "regression";
      config["id2label"] = {{"0", "LABEL_0"}};
      // Outputs are in units of the deviation.
      Tensor &weight = run.weights.at("output.weight"), &bias = run.weights.at("output.bias");
      weight = weight * run.scale.at("deviation").get<double>();
      bias = bias * run.scale.at("deviation").get<double>() + run.scale.at("mean").get<double>();
    } else if (has_classes) {
      config["problem_type"] =
          run.settings.at("data").at("label_separator") != "" ? several_labels : one_label;
    }
    for (std::size_t i = 0; i < run.labels.size(); ++i) {
      config["id2label"][std::to_string(i)] = run.labels[i];
      config["label2id"][run.labels[i]] = i;
    }
  }
  if (has_head) {
    names.add(bert_kind.bias, "output_bias");
    names.add_map({bert_kind.transform, "transform"});
    names.add_map({bert_kind.transform_norm, "transform_norm"});
    if (!tied) names.add(bert_kind.decoder, "output.weight");
    // A head that is not tied has a bias of its own, beside that of the layout.
    if (!tied) names.add(bert_kind.copy_of_bias, "output_bias");
  }
  ExportPlan plan{std::move(config), std::move(names), std::move(run.weights)};
  if (has_vectors) plan.beside = sentence_files(run.settings);
  if (has_vectors && model.at("pooler") != "none") publish_dense(model, plan);
  return plan;
}

template <const EncoderKind& kind>
Architecture encoder_architecture(const char* type, const char* name) {
  static constexpr std::string_view heads[] = {"Model", "ForMaskedLM", "ForPreTraining",
                                               "ForSequenceClassification", "ForTokenClassification"};
  const auto import = [](const Config& config, const Tensors& tensors) {
    return import_encoder(kind, config, tensors);
  };
  return {type,        name, kind.members, &encoder_table, import, &kind == &bert_kind ? is_bert : nullptr,
          export_bert, heads};
}

}  // namespace

std::vector<Architecture> bert_architectures() {
  return {encoder_architecture<bert_kind>("bert", "BERT"),
          encoder_architecture<roberta_kind>("roberta", "RoBERTa"),
          encoder_architecture<roberta_kind>("xlm-roberta", "XLM-RoBERTa"),
          encoder_architecture<distilbert_kind>("distilbert", "DistilBERT"),
          encoder_architecture<electra_kind>("electra", "ELECTRA"),
          encoder_architecture<mpnet_kind>("mpnet", "MPNet")};
}

}  // namespace heed::hub
