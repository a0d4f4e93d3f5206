#include "heed/tasks/text_learner.h"

#include <algorithm>

#include "heed/core/unicode.h"
#include "heed/data/agreement_text.h"
#include "heed/tasks/recipe.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

/// The text of a file, or of all files in a folder and those below it, by name.
Documents read_documents(const fs::path& path, const TextOptions& options, ReadReport& report) {
  if (!fs::is_directory(path)) return {read_text(path, options, &report)};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  check(!files.empty(), path.string(), ": the folder holds no files");
  std::sort(files.begin(), files.end());
  Documents documents;
  for (const fs::path& file : files) documents.push_back(read_text(file, options, &report));
  return documents;
}

std::string joined_lines(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence + "\n";
  return text;
}

constexpr const char* for_all = R"({
  "training": {"label_smoothing": 0.0,
    "optimizer": {"name": "adamw", "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1},
    "schedule": {"name": "cosine", "learning_rate": 0.002}}})";

constexpr const char* for_text = R"({
  "model": {"width": 192, "heads": 6, "feed_forward": 768, "decoder_layers": 4},
  "training": {"steps": 3000, "evaluate_every": 500, "save_every": 500, "schedule": {"warmup_steps": 200}}})";

/// Many small batches: the rules come late, and a short text gives few large ones.
constexpr const char* for_agreement = R"({
  "model": {"width": 96, "heads": 4, "feed_forward": 256, "decoder_layers": 2, "max_length": 128, "dropout": 0.0},
  "training": {"steps": 4000, "batch_tokens": 1024, "evaluate_every": 1000, "save_every": 1000,
    "schedule": {"warmup_steps": 100, "learning_rate": 0.003}}})";

}  // namespace

Settings text_settings(bool own_data, std::span<const MetricKind> metrics) {
  Settings settings;
  declare_runtime(settings);
  settings.choice(
      "objective", "causal", {"causal", "masked"},
      "causal: each token is predicted from those before it, to write text; masked: hidden tokens are "
      "guessed from both sides, to fill in blanks and to understand text");
  settings.text("data.file", "", "Text to learn from: a file, plain or gzip, or a folder of files");
  settings.text("data.valid", "", "Text to measure progress on; empty: the end of data.file");
  settings.number("data.valid_fraction", 0.1, 0, 0.999, "Without data.valid: its share of the characters");
  declare_text(settings);
  settings.integer("data.sentences", 20000, 1, 100'000'000, "Without data: how many sentences to learn from");
  settings.integer("data.held_out_sentences", 500, 1, 100'000'000, "Without data: how many to measure with");
  declare_tokenizer(settings, 2000, "characters");
  TransformerConfig model;
  model.norm = "pre";
  model.positions = "learned";
  model.activation = "gelu";
  model.tie_embeddings = "decoder";
  declare_model(settings, model, Stacks::decoder);
  declare_training(settings, metrics);
  settings.number("training.mask_share", 0.15, 0.001, 1,
                  "Masked: share of the tokens that are to be guessed");
  settings.integer("prediction.best", 5, 1, 1000, "Masked: how many fillings of a line --json shows");
  settings.integer(
      "evaluation.stride", 0, 0, 1 << 24,
      "Tokens from one window to the next: each is predicted from at least context - stride others; 0: "
      "half of the context");
  settings.integer("evaluation.sentences", 200, 0, 100'000,
                   "After training on the embedded text: sentences to write and to check against its rule");
  settings.number("generation.temperature", 1.0, 0, 1e6,
                  "Below 1: likelier tokens, above 1: more variety; 0: always the most probable token");
  settings.integer("generation.top_k", 0, 0, 1 << 30, "Only the k most probable tokens; 0: all");
  settings.number("generation.top_p", 1.0, 1e-9, 1,
                  "Only the most probable tokens that together reach this probability; 1: all");
  settings.integer("generation.tokens", 500, 1, 1'000'000, "The most tokens to add to the prompt");
  settings.integer("generation.samples", 1, 1, 1'000'000, "How many texts to write");
  settings.integer("generation.seed", 1, 0, INT64_MAX, "Seed of what is drawn");
  settings.change_defaults(for_all);
  settings.change_defaults(own_data ? for_text : for_agreement);
  return settings;
}

bool names_text(const Settings& settings) {
  const bool text = !settings.get<std::string>("data.file").empty();
  if (!text && !settings.get<std::string>("data.valid").empty())
    throw SettingsError("--valid needs --data, the text to learn from");
  return text;
}

bool is_masked(const Settings& settings) {
  return settings.get<std::string>("objective") == "masked";
}

WindowOptions training_windows(const Settings& settings) {
  WindowOptions options;
  options.length = settings.get<std::int64_t>("model.max_length");
  const auto tokens = settings.get<std::int64_t>("training.batch_tokens");
  if (tokens < options.length)
    throw SettingsError(concat_text("training.batch_tokens is ", tokens,
                                    ", but a single window (model.max_length) takes ", options.length));
  options.rows = tokens / options.length;
  options.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("seed"));
  return options;
}

std::int64_t character_count(const Documents& documents) {
  std::int64_t count = 0;
  for (const std::string& document : documents)
    count += std::count_if(document.begin(), document.end(),
                           [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
  return count;
}

void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what) {
  std::string unknown;
  for (const std::string& character : tokenizer.unknown_characters(text))
    unknown += (unknown.empty() ? "'" : ", '") + character + "'";
  check(unknown.empty(), what, " has characters that the tokenizer does not know: ", unknown,
        "; a model of characters reads those of its own text alone, one of BPE any");
}

Tokens TextLearner::stream_of(const Documents& documents, std::string_view what) const {
  Tokens stream;
  for (const std::string& document : documents) {
    check_known(*tokenizer_, document, what);
    stream.push_back(tokenizer_->id_of(text_mark));
    const Tokens tokens = tokenizer_->encode(document);
    stream.insert(stream.end(), tokens.begin(), tokens.end());
  }
  return stream;
}

/// The share of the characters at the end becomes what is measured with; the document that the border falls into is
/// cut there.
TextLearner::Corpus TextLearner::split(const Documents& documents, double valid_fraction) {
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

void TextLearner::read_data() {
  if (!names_text(settings_)) {
    // The text does not follow the seed: runs with other seeds are compared on the same sentences.
    const AgreementText text = agreement_text(1, settings_.get<std::int64_t>("data.sentences"),
                                              settings_.get<std::int64_t>("data.held_out_sentences"));
    corpus_ = {{joined_lines(text.train)}, {joined_lines(text.held_out)}};
    return;
  }
  Documents documents = read(settings_.get<std::string>("data.file"));
  const auto valid = settings_.get<std::string>("data.valid");
  corpus_ = valid.empty() ? split(documents, settings_.get<double>("data.valid_fraction"))
                          : Corpus{std::move(documents), read(valid)};
}

std::map<std::string, std::string> TextLearner::data_digests() const {
  return {{"train", digest_of_texts({corpus_.train})}, {"valid", digest_of_texts({corpus_.valid})}};
}

void TextLearner::learn_vocabulary() {
  std::vector<std::string> marks = {text_mark};
  if (is_masked(settings_)) marks.push_back(mask_token);
  Documents texts = corpus_.train;
  if (settings_.get<std::string>("tokenizer.kind") == "characters")
    texts.insert(texts.end(), corpus_.valid.begin(), corpus_.valid.end());
  tokenizer_ = learn_tokenizer(settings_, texts, marks, /*keep_line_breaks=*/true);
}

std::map<std::string, std::string> TextLearner::files() const {
  return {{"tokenizer.json", tokenizer_->to_json()}};
}

void TextLearner::open_files(const std::function<std::string(std::string_view)>& read) {
  tokenizer_ = Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json");
}

void TextLearner::prepare_training() {
  valid_characters_ = character_count(corpus_.valid);
  remark(concat_text(character_count(corpus_.train), " characters to learn from, ", valid_characters_,
                     " to measure with; vocabulary ", tokenizer_->vocabulary_size()));
  train_ = stream_of(corpus_.train, "the text to learn from");
  valid_ = stream_of(corpus_.valid, "the text to measure with");
  plan_.emplace(static_cast<std::int64_t>(train_.size()), training_windows(settings_));
}

std::int64_t TextLearner::batches(std::int64_t epoch) {
  return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
}

const std::vector<Window>& TextLearner::windows_of(std::int64_t epoch, std::int64_t batch) {
  return batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
}

Measurement TextLearner::measure(std::string_view part) {
  if (part == "test") throw SettingsError("a language_model run has no test part: give --data");
  const Documents& documents = part == "valid" ? corpus_.valid : corpus_.train;
  check(!documents.empty(), "the run has no validation text: give --data");
  return measurement_of(documents, !names_text(settings_));
}

Measurement TextLearner::measure_files(std::span<const std::string> files) {
  return measurement_of(read(files.front()), false);
}

std::vector<std::string> TextLearner::example_lines(std::size_t count) const {
  std::vector<std::string> lines;
  for (const std::string& document : corpus_.valid.empty() ? corpus_.train : corpus_.valid)
    for (std::size_t begin = 0; begin < document.size() && lines.size() < 500;) {
      const std::size_t end = std::min(document.find('\n', begin), document.size());
      lines.push_back(document.substr(begin, end - begin));
      begin = end + 1;
    }
  lines = short_lines(lines, count);
  const auto most = static_cast<std::size_t>(settings_.get<std::int64_t>("model.max_length")) - 1;
  for (std::string& line : lines) {
    Tokens tokens = tokenizer_->encode(line);
    if (tokens.size() > most) {  // a model reads no more
      tokens.resize(most);
      line = tokenizer_->decode(tokens);
    }
    if (!is_masked(settings_)) continue;
    const std::size_t space = line.find(' ', line.size() / 2), word = space == line.npos ? 0 : space + 1;
    line.replace(word, std::min(line.find(' ', word), line.size()) - word, mask_token);
  }
  return lines;
}

Documents TextLearner::read(const std::string& path) {
  ReadReport report;
  Documents documents = read_documents(path, text_options(settings_), report);
  remark_replaced(report);
  return documents;
}

}  // namespace heed
