// Language modelling: a decoder-only Transformer (models/language_model.h) that learns a text, characters or
// byte-level BPE, and writes on from a prompt. The text is a file or a folder of files; without one it learns
// English sentences made by rule.
//
// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid.

#include "heed/apps/tasks/language_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/base/unicode.h"
#include "heed/data/texts_by_rule.h"
#include "heed/models/language_model.h"
#include "heed/training/perplexity.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

/// Those of the causal objective, then those of the masked one alone.
constexpr MetricKind text_metrics[] = {{"loss", false},
                                       {"perplexity", false},
                                       {"nats_per_character", false},
                                       {"bits_per_character", false},
                                       {"accuracy", true},
                                       {"pseudo_perplexity", false}};
constexpr std::span causal_kinds = std::span(text_metrics).first<4>();

Settings language_model_settings(bool own_data) {
  return text_settings(own_data, text_metrics);
}

std::unique_ptr<Learner> make_text_learner(const TaskKind& kind, Settings settings) {
  if (is_masked(settings)) return make_masked_learner(kind, std::move(settings));
  return std::make_unique<TextWriter>(kind, std::move(settings));
}

std::vector<double> values_of(const TextLoss& loss) {  // in the order of `text_metrics`
  return {loss.nats_per_token(), loss.perplexity(), loss.nats_per_character(), loss.bits_per_character()};
}

}  // namespace

TextLossOptions evaluation_windows(const Settings& settings) {
  TextLossOptions options;
  options.window = settings.get<std::int64_t>("model.max_length");
  options.stride = settings.read<TextEvaluation>("evaluation").stride;
  if (options.stride > options.window)
    throw SettingsError(concat_text("evaluation.stride must be 1 to model.max_length (", options.window,
                                    "), or 0 for half of it, not ", options.stride));
  if (options.stride == 0) options.stride = std::max<std::int64_t>(options.window / 2, 1);
  options.rows = std::max<std::int64_t>(4096 / options.window, 1);
  return options;
}

// --- training

TextWriter::TextWriter(const TaskKind& kind, Settings given)
    : Learner(kind, std::move(given)),
      windows_(evaluation_windows(settings_)),
      rule_sentences_(settings_.read<TextEvaluation>("evaluation").sentences),
      generation_(settings_.read<Generation>("generation").options),
      text_(settings_) {
  writes_text_ = true;
  generation_.context = windows_.window;
  training_windows(settings_);
  const auto best_by = settings_.get<std::string>("training.keep_best_by");
  if (std::ranges::none_of(causal_kinds, [&](const MetricKind& one) { return one.name == best_by; }))
    throw SettingsError("training.keep_best_by=" + best_by + " is measured with objective=masked alone");
  if (settings_.get<bool>("model.output_transform") || !settings_.get<std::string>("tokenizer.begin").empty())
    throw SettingsError("model.output_transform and tokenizer.begin are of objective=masked alone");
}

std::map<std::string, std::string> TextWriter::read_parts() {
  text_.parts = reported([&](ReadReport& report) { return text_.read_parts(settings_, report); });
  return text_.digests();
}

NamedFiles TextWriter::learned_files() {
  TextStream::Remarks remarks;
  NamedFiles files = {{"tokenizer.json", text_.learned_tokenizer(settings_, remarks).to_json()}};
  remark_all(std::move(remarks));
  return files;
}

void TextWriter::open(const ReadFile& read) {
  text_.tokenizer = Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json");
  generation_.end = text_.tokenizer->id_of(text_mark);
}

std::unique_ptr<Module> TextWriter::make_model() {
  TransformerConfig config = model_config(settings_);
  config.target_vocabulary = text_.vocabulary_size();
  return model_of<LanguageModel>(config, batch_tokens());
}

void TextWriter::prepare_training() {
  TextStream::Remarks remarks;
  text_.prepare(settings_, remarks);
  remark_all(std::move(remarks));
}

Loss TextWriter::loss(std::int64_t epoch, std::int64_t batch, Context& context) {
  auto& model = model_as<LanguageModel>();
  return model.loss(window_batch(text_.train, text_.batches.at(epoch, batch), model.device()),
                    label_smoothing_, context);
}

Evaluation TextWriter::evaluate() {
  if (text_.valid.empty()) return {};
  const TextLoss loss =
      text_loss(model_as<LanguageModel>(), text_.valid, text_.valid_characters, windows_, ranks());
  return evaluation(metrics(values_of(loss)));
}

Measurement TextWriter::measured(const MeasureSource& source) {
  const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
    return text_.read(files.front(), layout, report);
  };
  const bool by_rule = !source.part.empty() && !names_file(settings_);
  return measured_data(text_.parts, source, read,
                       [&](const LargeText& documents) { return measured_text(documents, by_rule); });
}

Measurement TextWriter::measured_text(const LargeText& documents, bool by_rule) {
  TextStream::Remarks remarks;
  const TokenStream stream = text_.stream_of(documents, "the text", remarks);
  remark_all(std::move(remarks));
  const TextLoss loss = text_loss(model_as<LanguageModel>(), stream, documents.characters(), windows_);
  Measurement measurement;
  measurement.metrics = metrics(values_of(loss));
  measurement.count = loss.tokens;
  measurement.examples = {"loss", "mean", loss.parts};
  Json json = Json::object();
  for (const Metric& metric : measurement.metrics) json[metric.name] = metric.value;
  json["tokens"] = loss.tokens;
  json["characters"] = loss.characters;
  json["context"] = windows_.window;
  json["stride"] = windows_.stride;
  if (by_rule && rule_sentences_ > 0) {
    json["sentences"] = rule_sentences_;
    json["by_rule"] = share_by_rule(rule_sentences_);
  }
  measurement.json = json.dump();
  return measurement;
}

/// Share of lines, each begun by a line break, that follow the rule of the embedded text.
double TextWriter::share_by_rule(std::int64_t count) {
  GenerationOptions options = generation_;
  const Tokens line_break = text_.tokenizer->encode("\n");
  options.end = line_break.front();
  std::int64_t right = 0;
  for (const Tokens& tokens : generate(model_as<LanguageModel>(), line_break, count, options))
    right += follows_agreement(text_.tokenizer->decode(tokens)) ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(count);
}

// --- use

std::vector<Prediction> TextWriter::predict(std::span<const std::string> lines,
                                            const PredictOptions& options) {
  return for_each_line(lines, [&](std::size_t i, Prediction& prediction) {
    PredictOptions its_options = options;
    its_options.first_line += static_cast<std::int64_t>(i);
    prediction = write(lines[i], 1, its_options).front();
  });
}

Tensor TextWriter::outputs_of_lines(std::span<const std::string> lines, Context& context) {
  std::vector<Tokens> all;
  for (const std::string& line : lines) all.push_back(prompt_tokens(line));
  auto& model = model_as<LanguageModel>();
  return model.logits(model.hidden(pad_tokens(all, model.device()), context));
}

std::vector<Prediction> TextWriter::write(const std::string& prompt, std::int64_t samples,
                                          const PredictOptions& options) {
  const Tokens start = prompt_tokens(prompt);
  std::vector<Prediction> texts;
  TokenWatch watch;
  if (options.pieces)
    watch = [&](std::size_t, std::span<const std::int32_t> tokens) {
      options.pieces->grow(continuation(start, tokens));
    };
  std::vector<double> scores;
  for (const Tokens& tokens :
       generate(model_as<LanguageModel>(), start, samples, generation_, &scores, watch)) {
    const double score = scores[texts.size()];
    Prediction text{continuation(start, tokens), std::exp(score)};
    text.alternatives = {{text.text, text.probability, score}};
    if (options.capture) {
      Tokens whole = start;
      whole.insert(whole.end(), tokens.begin(), tokens.end());
      const std::string name =
          concat_text("samples.", options.first_line + static_cast<std::int64_t>(texts.size()));
      show_inside(std::move(whole), name, *options.capture);
      options.capture->add_answer(name, {prompt, text.text});
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<ExampleLine> TextWriter::examples(std::size_t count, bool answered) const {
  if (answered) return {};
  return lines_of(text_.lines(count, static_cast<std::size_t>(windows_.window) - 1));
}

/// The text of the tokens behind a prompt: of words it begins with a space.
std::string TextWriter::continuation(const Tokens& prompt, std::span<const std::int32_t> tokens) const {
  Tokens whole = prompt;
  whole.insert(whole.end(), tokens.begin(), tokens.end());
  return text_.tokenizer->decode(whole).substr(text_.tokenizer->decode(prompt).size());
}

/// The prompt as the model reads it; an empty one is a line break.
Tokens TextWriter::prompt_tokens(const std::string& given) const {
  const std::string prompt = given.empty() ? "\n" : given;
  check(unicode::find_invalid(prompt) == std::string::npos, "the prompt is not UTF-8");
  check_known(*text_.tokenizer, prompt, "the prompt");
  Tokens tokens = text_.tokenizer->encode(prompt);
  check(static_cast<std::int64_t>(tokens.size()) <= windows_.window, "the prompt has ", tokens.size(),
        " tokens, but the model sees at most ", windows_.window, " at a time (model.max_length)");
  return tokens;
}

/// One pass over the end of a text, as much as the model sees at a time.
void TextWriter::show_inside(Tokens tokens, const std::string& name, CaptureFile& file) {
  const auto limit = static_cast<std::size_t>(windows_.window);
  if (tokens.size() > limit) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(limit));
  auto& model = model_as<LanguageModel>();
  const PaddedTokens input = pad_tokens({&tokens, 1}, model.device());
  add_pass(file, name, captured([&](Context& context) { model.hidden(input, context); }), {tokens},
           *text_.tokenizer);
}

const TaskKind& language_model_task() {
  static const TaskKind kind{
      "language_model",        "Learns to predict text, token by token, measures it, and writes text with it",
      Stacks::decoder,         causal_kinds,
      language_model_settings, names_file,
      make_text_learner,       {{"", {{"text", "A document"}}}}};
  return kind;
}

TextWriter& text_writer(Learner& learner) {
  check(learner.kind().name == "language_model", "this is a ", learner.kind().name,
        " run, which writes no text");
  auto* writer = dynamic_cast<TextWriter*>(&learner);
  check(writer, "this run was trained with objective=masked: it fills in ", mask_token,
        " (language_model predict) and writes no text");
  return *writer;
}

}  // namespace heed
