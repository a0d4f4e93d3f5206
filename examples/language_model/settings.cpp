#include "settings.h"

#include <algorithm>
#include <filesystem>

#include "../common/model_settings.h"
#include "../common/program.h"
#include "../common/runtime.h"
#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "heed/data/agreement_text.h"
#include "heed/data/text_file.h"

namespace heed::programs {
namespace {

Json decoder_defaults() {
  TransformerConfig config;
  config.norm = "pre";
  config.positions = "learned";
  config.activation = "gelu";
  config.tie_embeddings = "decoder";
  return model_defaults(config, Stacks::decoder);
}

Json data_defaults() {
  return {{"file", ""},          {"valid", ""},        {"valid_fraction", 0.1},
          {"encoding", "utf-8"}, {"sentences", 20000}, {"held_out_sentences", 500}};
}

Json generation_defaults() {
  return {{"temperature", 1.0}, {"top_k", 0}, {"top_p", 1.0}, {"tokens", 500}, {"samples", 1}, {"seed", 1}};
}

Json file_changes() {
  return {{"model", {{"width", 192}, {"heads", 6}, {"feed_forward", 768}, {"decoder_layers", 4}}},
          {"training",
           {{"steps", 3000},
            {"evaluate_every", 500},
            {"save_every", 500},
            {"schedule", {{"warmup_steps", 200}}}}}};
}

/// Many small batches: the rules come late, and a short text gives few large ones.
Json agreement_changes() {
  return {{"model",
           {{"width", 96},
            {"heads", 4},
            {"feed_forward", 256},
            {"decoder_layers", 2},
            {"max_length", 128},
            {"dropout", 0.0}}},
          {"training",
           {{"steps", 4000},
            {"batch_tokens", 1024},
            {"evaluate_every", 1000},
            {"save_every", 1000},
            {"schedule", {{"warmup_steps", 100}, {"learning_rate", 0.003}}}}}};
}

/// The share of the characters at the end becomes what is measured with; the document that the border falls
/// into is cut there.
Corpus split(const Documents& documents, double valid_fraction) {
  if (!(valid_fraction >= 0 && valid_fraction < 1))
    throw UsageError(concat_text("data.valid_fraction must be in [0, 1), not ", valid_fraction));
  const std::int64_t all = character_count(documents);
  auto left = static_cast<std::int64_t>(static_cast<double>(all) * (1 - valid_fraction));
  Corpus corpus;
  for (const std::string& document : documents) {
    std::size_t at = 0;
    for (; at < document.size() && left > 0; --left)
      at += static_cast<std::size_t>(unicode::decode(document, at).length);
    if (at > 0) corpus.train.push_back(document.substr(0, at));
    if (at < document.size()) corpus.valid.push_back(document.substr(at));
  }
  return corpus;
}

std::string lines_of(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence + "\n";
  return text;
}

}  // namespace

Settings language_model_defaults(DataKind kind) {
  Json defaults = runtime_defaults();
  defaults["data"] = data_defaults();
  defaults["tokenizer"] = {{"kind", "characters"}, {"vocabulary", 2000}, {"min_frequency", 2}};
  defaults["model"] = decoder_defaults();
  defaults["training"] = training_defaults();
  defaults["evaluation"] = {{"stride", 0}};
  defaults["generation"] = generation_defaults();
  Settings settings(std::move(defaults), attention_settings(Stacks::decoder));
  settings.merge(
      {{"training",
        {{"label_smoothing", 0.0},
         {"optimizer", {{"name", "adamw"}, {"beta2", 0.99}, {"epsilon", 1e-8}, {"weight_decay", 0.1}}},
         {"schedule", {{"name", "cosine"}, {"learning_rate", 0.002}}}}}},
      "defaults");
  settings.merge(kind == DataKind::files ? file_changes() : agreement_changes(), "defaults");
  return settings;
}

bool has_files(const Settings& settings) {
  const bool text = !settings.get<std::string>("data.file").empty();
  if (!text && !settings.get<std::string>("data.valid").empty())
    throw UsageError("--valid needs --data, the text to learn from");
  return text;
}

std::unique_ptr<LanguageModel> make_language_model(const Settings& settings, std::int64_t vocabulary,
                                                   Device device) {
  return make_model<LanguageModel>(settings, {{"target_vocabulary", vocabulary}}, device);
}

Documents read_documents(const Settings& settings, const std::string& path) {
  namespace fs = std::filesystem;
  const Encoding encoding = encoding_from_name(settings.get<std::string>("data.encoding"));
  if (!fs::is_directory(path)) return {read_text(path, encoding)};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  check(!files.empty(), path, ": the folder holds no files");
  std::sort(files.begin(), files.end());
  Documents documents;
  for (const fs::path& file : files) documents.push_back(read_text(file, encoding));
  return documents;
}

Corpus load_corpus(const Settings& settings) {
  if (!has_files(settings)) {
    // The text does not follow the seed: runs with other seeds are compared on the same sentences.
    const AgreementText text = agreement_text(1, settings.get<std::int64_t>("data.sentences"),
                                              settings.get<std::int64_t>("data.held_out_sentences"));
    return {{lines_of(text.train)}, {lines_of(text.held_out)}};
  }
  Documents documents = read_documents(settings, settings.get<std::string>("data.file"));
  const auto valid = settings.get<std::string>("data.valid");
  if (valid.empty()) return split(documents, settings.get<double>("data.valid_fraction"));
  return {std::move(documents), read_documents(settings, valid)};
}

Tokenizer train_tokenizer(const Settings& settings, const Corpus& corpus) {
  const auto kind = settings.get<std::string>("tokenizer.kind");
  check_name("tokenizer", kind, {"characters", "bpe"});
  if (kind == "characters") {
    Documents all = corpus.train;
    all.insert(all.end(), corpus.valid.begin(), corpus.valid.end());
    return Tokenizer::train_characters(all, {text_mark});
  }
  TokenizerTraining options;
  options.vocabulary_size = settings.get<std::int64_t>("tokenizer.vocabulary");
  options.min_frequency = settings.get<std::int64_t>("tokenizer.min_frequency");
  options.special_tokens = {text_mark};
  return Tokenizer::train(corpus.train, options);
}

void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what) {
  std::string unknown;
  for (const std::string& character : tokenizer.unknown_characters(text))
    unknown += (unknown.empty() ? "'" : ", '") + character + "'";
  check(unknown.empty(), what, " has characters that the tokenizer does not know: ", unknown,
        "; a model of characters reads those of its own text alone, one of BPE any");
}

Tokens stream_of(const Tokenizer& tokenizer, const Documents& documents, std::string_view what) {
  Tokens stream;
  for (const std::string& document : documents) {
    check_known(tokenizer, document, what);
    stream.push_back(tokenizer.id_of(text_mark));
    const Tokens tokens = tokenizer.encode(document);
    stream.insert(stream.end(), tokens.begin(), tokens.end());
  }
  return stream;
}

std::int64_t character_count(const Documents& documents) {
  std::int64_t count = 0;
  for (const std::string& document : documents)
    count += std::count_if(document.begin(), document.end(),
                           [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
  return count;
}

TextLossOptions evaluation_windows(const Settings& settings) {
  TextLossOptions options;
  options.window = settings.get<std::int64_t>("model.max_length");
  options.stride = settings.get<std::int64_t>("evaluation.stride");
  if (options.stride < 0 || options.stride > options.window)
    throw UsageError(concat_text("evaluation.stride must be 1 to model.max_length (", options.window,
                                 "), or 0 for half of it, not ", options.stride));
  if (options.stride == 0) options.stride = std::max<std::int64_t>(options.window / 2, 1);
  options.rows = std::max<std::int64_t>(4096 / options.window, 1);
  return options;
}

}  // namespace heed::programs
