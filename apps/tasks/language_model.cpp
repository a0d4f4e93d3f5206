// Language modelling: a decoder-only Transformer (models/language_model.h) that learns a text, characters or
// byte-level BPE, and writes on from a prompt. The text is a file or a folder of files; without one it learns
// English sentences made by rule.
//
// Files of a run beside the weights: tokenizer.json. Parts of the data: train, valid.

#include "heed/apps/tasks/language_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/apps/tasks/recipe.h"
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

/// Windows of model.max_length, evaluation.stride apart.
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

GenerationOptions generation_options(const Settings& settings, const Tokenizer& tokenizer) {
  GenerationOptions options = settings.read<Generation>("generation").options;
  options.end = tokenizer.id_of(text_mark);
  options.context = settings.get<std::int64_t>("model.max_length");
  return options;
}

/// The causal objective.
class LanguageModelLearner : public TextLearner, public TextWriter {
 public:
  using TextLearner::TextLearner;

  void check_settings() const override {
    names_file(settings_);
    training_windows(settings_);
    evaluation_windows(settings_);
    const auto best_by = settings_.get<std::string>("training.keep_best_by");
    if (std::ranges::none_of(causal_kinds, [&](const MetricKind& one) { return one.name == best_by; }))
      throw SettingsError("training.keep_best_by=" + best_by + " is measured with objective=masked alone");
    if (settings_.get<bool>("model.output_transform") ||
        !settings_.get<std::string>("tokenizer.begin").empty())
      throw SettingsError("model.output_transform and tokenizer.begin are of objective=masked alone");
    check_model<LanguageModel>(config(300), batch_tokens());
  }

  void build(Device device) override {
    model_ = make_model<LanguageModel>(config(tokenizer_->vocabulary_size()), batch_tokens(), device);
  }

  // --- training

  Module& model() override { return *model_; }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    return model_->loss(window_batch(train_, windows_of(epoch, batch), model_->device()), label_smoothing_,
                        context);
  }

  Evaluation evaluate() override {
    if (valid_.empty()) return {};
    const TextLoss loss =
        text_loss(*model_, valid_, valid_characters_, evaluation_windows(settings_), ranks());
    return evaluation(metrics(values_of(loss)));
  }

  // --- use

  bool writes_text() const override { return true; }

  void check_prompt(const std::string& prompt) const override {
    prompt_tokens(prompt, settings_.get<std::int64_t>("model.max_length"));
  }

  /// Logits [B, N, V] of what follows each token of each line.
  Tensor outputs_of_lines(std::span<const std::string> lines, Context& context) override {
    std::vector<Tokens> all;
    for (const std::string& line : lines)
      all.push_back(prompt_tokens(line, settings_.get<std::int64_t>("model.max_length")));
    return model_->logits(model_->hidden(pad_tokens(all, model_->device()), context));
  }

  std::vector<Prediction> write(const std::string& prompt, std::int64_t samples,
                                const PredictOptions& options) override {
    const GenerationOptions generation = generation_options(settings_, *tokenizer_);
    const Tokens start = prompt_tokens(prompt, generation.context);
    std::vector<Prediction> texts;
    TokenWatch watch;
    if (options.pieces)
      watch = [&](std::size_t, std::span<const std::int32_t> tokens) {
        options.pieces->grow(continuation(start, tokens));
      };
    std::vector<double> scores;
    for (const Tokens& tokens : generate(*model_, start, samples, generation, &scores, watch)) {
      if (options.capture) {
        Tokens whole = start;
        whole.insert(whole.end(), tokens.begin(), tokens.end());
        const std::string name =
            concat_text("samples.", options.first_line + static_cast<std::int64_t>(texts.size()));
        show_inside(std::move(whole), generation.context, name, *options.capture);
        options.capture->add_answer(name, {prompt, continuation(start, tokens)});
      }
      const double score = scores[texts.size()];
      Prediction& text = texts.emplace_back();
      text.text = continuation(start, tokens);
      text.probability = std::exp(score);
      text.alternatives = {{text.text, text.probability, score}};
    }
    return texts;
  }

 protected:
  /// One continuation.
  Prediction answer(const std::string& line, const PredictOptions& options) override {
    return write(line, 1, options).front();
  }

  Measurement measurement_of(const LargeText& documents) override {
    const TextLossOptions windows = evaluation_windows(settings_);
    const TokenStream stream = stream_of(documents, "the text");
    const TextLoss loss = text_loss(*model_, stream, documents.characters(), windows);
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
    if (const auto sentences = settings_.read<TextEvaluation>("evaluation").sentences;
        has_rule(documents) && sentences > 0) {
      json["sentences"] = sentences;
      json["by_rule"] = share_by_rule(sentences);
    }
    measurement.json = json.dump();
    return measurement;
  }

 private:
  TransformerConfig config(std::int64_t vocabulary) const {
    TransformerConfig config = model_config(settings_);
    config.target_vocabulary = vocabulary;
    return config;
  }

  static std::vector<double> values_of(const TextLoss& loss) {  // in the order of `text_metrics`
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

  /// The text of the tokens behind a prompt: of words it begins with a space.
  std::string continuation(const Tokens& prompt, std::span<const std::int32_t> tokens) const {
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
  void show_inside(Tokens tokens, std::int64_t context_tokens, const std::string& name, CaptureFile& file) {
    const auto limit = static_cast<std::size_t>(context_tokens);
    if (tokens.size() > limit)
      tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(limit));
    const PaddedTokens input = pad_tokens({&tokens, 1}, model_->device());
    add_pass(file, name, captured([&](Context& context) { model_->hidden(input, context); }), {tokens},
             *tokenizer_);
  }

  std::unique_ptr<LanguageModel> model_;
};

Settings language_model_settings(bool own_data) {
  return text_settings(own_data, text_metrics);
}

std::unique_ptr<Learner> make_text_learner(const TaskKind& kind, Settings settings) {
  return is_masked(settings) ? make_masked_learner(kind, std::move(settings))
                             : std::make_unique<LanguageModelLearner>(kind, std::move(settings));
}

}  // namespace

const TaskKind& language_model_task() {
  static const TaskKind kind = [] {
    TaskKind text = task_of<LanguageModelLearner>(
        "language_model", "Learns to predict text, token by token, measures it, and writes text with it",
        Stacks::decoder, causal_kinds, language_model_settings, names_file);
    text.make_learner = make_text_learner;
    text.examples = {{"", {{"text", "A document"}}}};
    return text;
  }();
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
