#include "heed/tasks/language_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "heed/autograd/autograd.h"
#include "heed/core/unicode.h"
#include "heed/data/agreement_text.h"
#include "heed/data/text_windows.h"
#include "heed/models/language_model.h"
#include "heed/tasks/data.h"
#include "heed/tasks/recipe.h"
#include "heed/training/perplexity.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr MetricKind kinds[] = {
    {"loss", false}, {"perplexity", false}, {"nats_per_character", false}, {"bits_per_character", false}};

/// Stands before every document of the stream that a model learns, so it begins a text and ends it.
const std::string text_mark = "<|endoftext|>";

/// Documents: their characters are what a model is measured by.
using Documents = std::vector<std::string>;

// --- settings

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

Settings language_model_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
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
  declare_training(settings, kinds);
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

bool names_data(const Settings& settings) {
  const bool text = !settings.get<std::string>("data.file").empty();
  if (!text && !settings.get<std::string>("data.valid").empty())
    throw SettingsError("--valid needs --data, the text to learn from");
  return text;
}

/// Windows of model.max_length, evaluation.stride apart.
TextLossOptions evaluation_windows(const Settings& settings) {
  TextLossOptions options;
  options.window = settings.get<std::int64_t>("model.max_length");
  options.stride = settings.get<std::int64_t>("evaluation.stride");
  if (options.stride > options.window)
    throw SettingsError(concat_text("evaluation.stride must be 1 to model.max_length (", options.window,
                                    "), or 0 for half of it, not ", options.stride));
  if (options.stride == 0) options.stride = std::max<std::int64_t>(options.window / 2, 1);
  options.rows = std::max<std::int64_t>(4096 / options.window, 1);
  return options;
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

GenerationOptions generation_options(const Settings& settings, const Tokenizer& tokenizer) {
  GenerationOptions options;
  options.sampling = {settings.get<double>("generation.temperature"),
                      settings.get<std::int64_t>("generation.top_k"),
                      settings.get<double>("generation.top_p")};
  options.tokens = settings.get<std::int64_t>("generation.tokens");
  options.end = tokenizer.id_of(text_mark);
  options.context = settings.get<std::int64_t>("model.max_length");
  options.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("generation.seed"));
  return options;
}

// --- data

std::int64_t character_count(const Documents& documents) {
  std::int64_t count = 0;
  for (const std::string& document : documents)
    count += std::count_if(document.begin(), document.end(),
                           [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
  return count;
}

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

struct Corpus {
  Documents train, valid;
};

/// The share of the characters at the end becomes what is measured with; the document that the border falls into is
/// cut there.
Corpus split_documents(const Documents& documents, double valid_fraction) {
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

std::string joined_lines(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence + "\n";
  return text;
}

/// Throws an Error that names the characters of the text which the tokenizer does not know, if any.
void check_known(const Tokenizer& tokenizer, std::string_view text, std::string_view what) {
  std::string unknown;
  for (const std::string& character : tokenizer.unknown_characters(text))
    unknown += (unknown.empty() ? "'" : ", '") + character + "'";
  check(unknown.empty(), what, " has characters that the tokenizer does not know: ", unknown,
        "; a model of characters reads those of its own text alone, one of BPE any");
}

/// The stream of the documents: the mark and the text of each.
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

class LanguageModelLearner : public Learner, public TextWriter {
 public:
  using Learner::Learner;

  void check_settings() const override {
    names_data(settings_);
    training_windows(settings_);
    evaluation_windows(settings_);
    check_model<LanguageModel>(config(300), settings_.get<std::int64_t>("training.batch_tokens"));
  }

  void read_data() override {
    if (!names_data(settings_)) {
      // The text does not follow the seed: runs with other seeds are compared on the same sentences.
      const AgreementText text = agreement_text(1, settings_.get<std::int64_t>("data.sentences"),
                                                settings_.get<std::int64_t>("data.held_out_sentences"));
      corpus_ = {{joined_lines(text.train)}, {joined_lines(text.held_out)}};
      return;
    }
    Documents documents = read(settings_.get<std::string>("data.file"));
    const auto valid = settings_.get<std::string>("data.valid");
    corpus_ = valid.empty() ? split_documents(documents, settings_.get<double>("data.valid_fraction"))
                            : Corpus{std::move(documents), read(valid)};
  }

  std::map<std::string, std::string> data_digests() const override {
    return {{"train", digest_of_texts({corpus_.train})}, {"valid", digest_of_texts({corpus_.valid})}};
  }

  /// The characters of all the text there is; words and BPE are learned from what is trained on.
  void learn_vocabulary() override {
    Documents texts = corpus_.train;
    if (settings_.get<std::string>("tokenizer.kind") == "characters")
      texts.insert(texts.end(), corpus_.valid.begin(), corpus_.valid.end());
    tokenizer_ = learn_tokenizer(settings_, texts, {text_mark}, /*keep_line_breaks=*/true);
  }

  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->to_json()}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    tokenizer_ = Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json");
  }

  void build(Device device) override {
    model_ = make_model<LanguageModel>(config(tokenizer_->vocabulary_size()),
                                       settings_.get<std::int64_t>("training.batch_tokens"), device);
  }

  void prepare_training() override {
    remark(concat_text(character_count(corpus_.train), " characters to learn from, ",
                       character_count(corpus_.valid), " to measure with; vocabulary ",
                       tokenizer_->vocabulary_size()));
    train_ = stream_of(*tokenizer_, corpus_.train, "the text to learn from");
    valid_ = stream_of(*tokenizer_, corpus_.valid, "the text to measure with");
    plan_.emplace(static_cast<std::int64_t>(train_.size()), training_windows(settings_));
  }

  // --- training

  Module& model() override { return *model_; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const std::vector<Window>& windows = batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
    return model_->loss(window_batch(train_, windows, model_->device()),
                        settings_.get<double>("training.label_smoothing"), context);
  }

  Evaluation evaluate() override {
    if (valid_.empty()) return {};
    const TextLoss loss =
        text_loss(*model_, valid_, character_count(corpus_.valid), evaluation_windows(settings_));
    return evaluation(values_of(loss));
  }

  // --- use

  /// One continuation of each line.
  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    std::vector<Prediction> predictions;
    PredictOptions of_line = options;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      of_line.first_line = options.first_line + static_cast<std::int64_t>(i);
      try {
        predictions.push_back(is_blank(lines[i]) ? Prediction() : write(lines[i], 1, of_line).front());
      } catch (const DeviceLost&) {
        throw;
      } catch (const OutOfMemory&) {
        throw;
      } catch (const Error& error) {
        predictions.emplace_back().error = error.what();
      }
    }
    return predictions;
  }

  void check_prompt(const std::string& prompt) const override {
    prompt_tokens(prompt, settings_.get<std::int64_t>("model.max_length"));
  }

  std::vector<Prediction> write(const std::string& prompt, std::int64_t samples,
                                const PredictOptions& options) override {
    const GenerationOptions generation = generation_options(settings_, *tokenizer_);
    const Tokens start = prompt_tokens(prompt, generation.context);
    std::vector<Prediction> texts;
    for (const Tokens& tokens : generate(*model_, start, samples, generation)) {
      if (options.capture) {
        Tokens whole = start;
        whole.insert(whole.end(), tokens.begin(), tokens.end());
        show_inside(std::move(whole), generation.context,
                    options.first_line + static_cast<std::int64_t>(texts.size()), *options.capture);
      }
      texts.emplace_back().text = continuation(start, tokens);
    }
    return texts;
  }

  Measurement measure(std::string_view part) override {
    if (part == "test") throw SettingsError("a language_model run has no test part: give --data");
    const Documents& documents = part == "valid" ? corpus_.valid : corpus_.train;
    check(!documents.empty(), "the run has no validation text: give --data");
    return measurement_of(documents, !names_data(settings_));
  }

  Measurement measure_files(std::span<const std::string> files) override {
    return measurement_of(read(files.front()), false);
  }

 private:
  TransformerConfig config(std::int64_t vocabulary) const {
    TransformerConfig config = model_config(settings_);
    config.target_vocabulary = vocabulary;
    return config;
  }

  Documents read(const std::string& path) {
    ReadReport report;
    Documents documents = read_documents(path, text_options(settings_), report);
    remark_replaced(report);
    return documents;
  }

  static std::vector<double> values_of(const TextLoss& loss) {  // in the order of `kinds`
    return {loss.nats_per_token(), loss.perplexity(), loss.nats_per_character(), loss.bits_per_character()};
  }

  /// Share of lines, each begun by a line break, that follow the rule of the embedded text.
  double share_by_rule(std::int64_t count) {
    GenerationOptions options = generation_options(settings_, *tokenizer_);
    const Tokens line_break = tokenizer_->encode("\n");
    options.end = line_break.front();
    std::int64_t right = 0;
    for (const Tokens& tokens : generate(*model_, line_break, count, options))
      right += follows_agreement(tokenizer_->decode(tokens)) ? 1 : 0;
    return static_cast<double>(right) / static_cast<double>(count);
  }

  Measurement measurement_of(const Documents& documents, bool has_rule) {
    const TextLossOptions windows = evaluation_windows(settings_);
    const Tokens stream = stream_of(*tokenizer_, documents, "the text");
    const TextLoss loss = text_loss(*model_, stream, character_count(documents), windows);
    Measurement measurement;
    measurement.metrics = metrics(values_of(loss));
    measurement.count = loss.tokens;
    measurement.examples = {"loss", "mean", loss.parts};
    Json json = Json::object();
    for (const Metric& metric : measurement.metrics) json[metric.name] = metric.value;
    json["tokens"] = loss.tokens;
    json["characters"] = loss.characters;
    json["context"] = windows.window;
    json["stride"] = windows.stride;
    if (const auto sentences = settings_.get<std::int64_t>("evaluation.sentences");
        has_rule && sentences > 0) {
      json["sentences"] = sentences;
      json["by_rule"] = share_by_rule(sentences);
    }
    measurement.json = json.dump();
    return measurement;
  }

  /// The text of the tokens behind a prompt: of words it begins with a space.
  std::string continuation(const Tokens& prompt, const Tokens& tokens) const {
    Tokens whole = prompt;
    whole.insert(whole.end(), tokens.begin(), tokens.end());
    return tokenizer_->decode(whole).substr(tokenizer_->decode(prompt).size());
  }

  /// The prompt as the model reads it; an empty one is a line break.
  Tokens prompt_tokens(const std::string& given, std::int64_t context) const {
    const std::string prompt = given.empty() ? "\n" : given;
    check(unicode::find_invalid(prompt) == std::string::npos, "the prompt is not UTF-8");
    check_known(*tokenizer_, prompt, "the prompt");
    Tokens tokens = tokenizer_->encode(prompt);
    check(static_cast<std::int64_t>(tokens.size()) <= context, "the prompt has ", tokens.size(),
          " tokens, but the model sees at most ", context, " at a time (model.max_length)");
    return tokens;
  }

  /// One pass over the end of a text, as much as the model sees at a time.
  void show_inside(Tokens tokens, std::int64_t context_tokens, std::int64_t sample, CaptureFile& file) {
    const auto limit = static_cast<std::size_t>(context_tokens);
    if (tokens.size() > limit)
      tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(limit));
    const NoGrad no_grad;
    Capture capture;
    Context context = Context::inference();
    context.capture = &capture;
    const PaddedTokens input = pad_tokens({&tokens, 1}, model_->device());
    model_->hidden(input, context);
    const std::string example = "samples." + std::to_string(sample);
    file.add_tokens(example, "tokens", input.ids, token_texts(*tokenizer_, tokens));
    file.add(example, capture);
  }

  Corpus corpus_;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<LanguageModel> model_;
  Tokens train_, valid_;  // streams; nothing to measure with: empty
  std::optional<WindowPlan> plan_;
  EpochBatches<WindowPlan> batches_;
};

}  // namespace

const TaskKind& language_model_task() {
  static const TaskKind kind{"language_model",
                             "Learns to predict text, token by token, measures it, and writes text with it",
                             Stacks::decoder,
                             kinds,
                             language_model_settings,
                             names_data,
                             make_learner<LanguageModelLearner>};
  return kind;
}

TextWriter& text_writer(Learner& learner) {
  auto* writer = dynamic_cast<TextWriter*>(&learner);
  check(writer, "this is a ", learner.kind().name, " run, which writes no text");
  return *writer;
}

}  // namespace heed
