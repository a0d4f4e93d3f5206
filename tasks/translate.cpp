#include "heed/tasks/translate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/autograd/autograd.h"
#include "heed/data/number_words.h"
#include "heed/data/text_file.h"
#include "heed/models/encoder_decoder.h"
#include "heed/models/search.h"
#include "heed/tasks/data.h"
#include "heed/tasks/recipe.h"
#include "heed/training/bleu.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr MetricKind kinds[] = {{"bleu", true}, {"loss", false}, {"exact", true}};
constexpr const char* cross_setting = "model.cross_attention";

// --- settings

/// Sentences need a larger vocabulary and model than number words, which a small model learns within a minute.
constexpr const char* for_sentences = R"({
  "tokenizer": {"vocabulary": 8000}, "model": {"dropout": 0.3, "norm": "pre"},
  "training": {"steps": 6000, "batch_tokens": 8192, "evaluate_every": 1000, "save_every": 500,
    "schedule": {"warmup_steps": 1000, "learning_rate": 0.002}}})";

constexpr const char* for_number_words = R"({
  "tokenizer": {"vocabulary": 400},
  "model": {"width": 128, "feed_forward": 256, "encoder_layers": 2, "decoder_layers": 2},
  "training": {"steps": 800, "evaluate_every": 200, "save_every": 200, "label_smoothing": 0.05,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}, "keep_best_by": "exact"}})";

void declare_data(Settings& settings) {
  settings.text("data.source", "", "Sentences to learn from, one a line; plain or gzip");
  settings.text("data.target", "", "Their translations, line by line");
  settings.text("data.valid_source", "", "Sentences to measure progress on");
  settings.text("data.valid_target", "", "Their translations");
  declare_text(settings);
  settings.integer("data.max_tokens", 256, 1, 1 << 24, "Longer pairs are left out of training, and said");
  settings.integer("data.numbers", 20000, 1, 999'999, "Without data: how many number words to learn from");
  settings.integer("data.held_out_numbers", 500, 1, 999'999, "Without data: how many to measure with");
}

void declare_decoding(Settings& settings) {
  const SearchOptions options;
  settings.integer("decoding.beam", options.beam, 1, 1024,
                   "Hypotheses that the search keeps for each sentence; 1: greedy");
  settings.integer("decoding.n_best", options.best, 1, 1024,
                   "How many of them `predict --json` shows; at most the beam");
  settings.number("decoding.length_penalty", options.length_penalty, 0, 100,
                  "Exponent of the length penalty; 0: none");
  settings.number(
      "decoding.length_ratio", options.length_ratio, 0, 1000,
      "An output has at most so many tokens for each of its source's, and decoding.length_extra more");
  settings.integer("decoding.length_extra", options.length_extra, 0, 1'000'000, "See decoding.length_ratio");
  settings.flag("decoding.early_stop", options.early_stop,
                "Whether a sentence ends once `beam` hypotheses have");
  settings.integer("decoding.batch_size", 64, 1, 1'000'000, "Sentences that are translated at a time");
  settings.integer("decoding.max_source_tokens", 1024, 1, 1 << 24,
                   "Longer sources are cut when they are translated, and said");
}

Settings translate_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
  declare_data(settings);
  declare_tokenizer(settings, 8000);
  TransformerConfig model;
  model.tie_embeddings = "all";
  declare_model(settings, model, Stacks::encoder_decoder);
  declare_training(settings, kinds);
  declare_decoding(settings);
  settings.change_defaults(own_data ? for_sentences : for_number_words);
  return settings;
}

/// True when both are given, false when neither is.
bool both_given(const Settings& settings, const char* source, const char* target) {
  const bool has_source = !settings.get<std::string>(source).empty(),
             has_target = !settings.get<std::string>(target).empty();
  if (has_source != has_target) {
    const auto flag = [](std::string name) {
      name = "--" + name.substr(name.find('.') + 1);
      std::replace(name.begin(), name.end(), '_', '-');
      return name;
    };
    throw SettingsError(flag(source) + " and " + flag(target) + " go together, but only one is given");
  }
  return has_source;
}

bool names_data(const Settings& settings) {
  const bool train = both_given(settings, "data.source", "data.target");
  const bool valid = both_given(settings, "data.valid_source", "data.valid_target");
  if (valid && !train) throw SettingsError("validation files need --source and --target too");
  return train;
}

SearchOptions search_options(const Settings& settings, const Tokenizer& tokenizer) {
  SearchOptions options;
  options.begin = tokenizer.id_of("<s>");
  options.end = tokenizer.id_of("</s>");
  options.beam = settings.get<std::int64_t>("decoding.beam");
  options.length_penalty = settings.get<double>("decoding.length_penalty");
  options.length_ratio = settings.get<double>("decoding.length_ratio");
  options.length_extra = settings.get<std::int64_t>("decoding.length_extra");
  options.early_stop = settings.get<bool>("decoding.early_stop");
  options.best = settings.get<std::int64_t>("decoding.n_best");
  if (options.best > options.beam)
    throw SettingsError(
        concat_text("decoding.n_best is ", options.best, ", more than decoding.beam, ", options.beam));
  return options;
}

// --- hard-coded cross-attention needs to know how long sources are beside their targets

/// True for hard-coded attention without a gamma: a name, or an object with one.
bool lacks_gamma(const Json& choice) {
  const Json name = choice.is_object() ? choice.value("name", Json()) : choice;
  return name == "hard_coded_gaussian" && !(choice.is_object() && choice.contains("gamma"));
}

/// Mean source over mean target length, each with its mark.
double length_ratio(const Tokenizer& tokenizer, const ParallelText& text) {
  const auto tokens_in = [&](const std::vector<std::string>& lines) {
    std::size_t count = lines.size();
    for (const std::string& line : lines) count += tokenizer.encode(line).size();
    return static_cast<double>(count);
  };
  return tokens_in(text.source) / tokens_in(text.target);
}

/// Sentence pairs as tokens, in batches of like length.
class TokenizedText {
 public:
  TokenizedText(const Tokenizer& tokenizer, const ParallelText& text, const BatchOptions& options)
      : begin_(tokenizer.id_of("<s>")), end_(tokenizer.id_of("</s>")) {
    for (const std::string& line : text.source) sources_.push_back(tokens_with_end(tokenizer, line));
    for (const std::string& line : text.target) targets_.push_back(tokenizer.encode(line));
    plan_.emplace(lengths_of(sources_), lengths_of(targets_, 1), options);
  }
  const BatchPlan& plan() const { return *plan_; }
  TranslationBatch batch(const Batch& rows, Device device) const {
    return make_translation_batch(pick(sources_, rows), pick(targets_, rows), begin_, end_, device);
  }

 private:
  std::int32_t begin_, end_;
  std::vector<Tokens> sources_, targets_;
  std::optional<BatchPlan> plan_;
};

class TranslateLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override {
    names_data(settings_);
    check_model<EncoderDecoder>(config(300), settings_.get<std::int64_t>("training.batch_tokens"));
  }

  void read_data() override {
    if (!names_data(settings_)) {
      // The sets do not follow the seed: runs with other seeds are compared on the same numbers.
      const NumberSets sets = draw_numbers(1, settings_.get<std::int64_t>("data.numbers"),
                                           settings_.get<std::int64_t>("data.held_out_numbers"));
      train_ = number_words(sets.train);
      valid_ = number_words(sets.held_out);
      return;
    }
    train_ = read_pairs(settings_.get<std::string>("data.source"), settings_.get<std::string>("data.target"));
    const auto valid = settings_.get<std::string>("data.valid_source");
    if (!valid.empty()) valid_ = read_pairs(valid, settings_.get<std::string>("data.valid_target"));
  }

  std::map<std::string, std::string> data_digests() const override {
    return {{"train", digest_of_texts({train_.source, train_.target})},
            {"valid", digest_of_texts({valid_.source, valid_.target})}};
  }

  void learn_vocabulary() override {
    std::vector<std::string> lines = train_.source;  // one vocabulary for both languages
    lines.insert(lines.end(), train_.target.begin(), train_.target.end());
    tokenizer_ = learn_tokenizer(settings_, lines);
    set_gamma();
  }

  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->to_json()}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    tokenizer_ = Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json");
  }

  void build(Device device) override {
    model_ = make_model<EncoderDecoder>(config(tokenizer_->vocabulary_size()),
                                        settings_.get<std::int64_t>("training.batch_tokens"), device);
  }

  void prepare_training() override {
    remark(concat_text(train_.size(), " pairs to learn from, ", valid_.size(),
                       " to measure with; vocabulary ", tokenizer_->vocabulary_size()));
    pairs_.emplace(*tokenizer_, train_, training_batches(settings_));
    if (const std::string left_out = pairs_->plan().left_out_message(); !left_out.empty()) remark(left_out);
  }

  // --- training

  Module& model() override { return *model_; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(pairs_->plan(), epoch).size());
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.of(pairs_->plan(), epoch)[static_cast<std::size_t>(batch)];
    return model_->loss(pairs_->batch(rows, model_->device()),
                        settings_.get<double>("training.label_smoothing"), context);
  }

  /// Greedy: validation is often, and the order of models hardly depends on the beam.
  Evaluation evaluate() override {
    if (valid_.size() == 0) return {};
    SearchOptions options = search_options(settings_, *tokenizer_);
    options.beam = options.best = 1;
    return evaluation(quality_of(valid_, options).values());
  }

  // --- use

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    const std::vector<Prediction> predictions =
        translated(lines, search_options(settings_, *tokenizer_), options);
    say_what_was_cut();
    return predictions;
  }

  Measurement measure(std::string_view part) override {
    if (part == "test") throw SettingsError("a translate run has no test part: give --source and --target");
    const ParallelText& text = part == "valid" ? valid_ : train_;
    check(text.size() > 0, "the run has no validation files: give --source and --target");
    return measurement_of(text);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    if (files.size() != 2) throw SettingsError("--source and --target go together, but only one is given");
    return measurement_of(read_pairs(files[0], files[1]));
  }

 private:
  struct Quality {
    double bleu = 0, loss = 0, exact = 0;
    std::string signature;
    std::vector<double> values() const { return {bleu, loss, exact}; }  // in the order of `kinds`
  };

  TransformerConfig config(std::int64_t vocabulary) const {
    TransformerConfig config = model_config(settings_);
    config.source_vocabulary = config.target_vocabulary = vocabulary;
    return config;
  }

  ParallelText read_pairs(const std::string& source, const std::string& target) {
    ReadReport report;
    ParallelText text = read_parallel_text(source, target, text_options(settings_), &report);
    remark_replaced(report);
    return text;
  }

  /// Where hard-coded Gaussian attention looks from the decoder to the encoder and no gamma is set: sets it to the
  /// mean length of a source over that of its target, as the paper has it (arXiv 2005.00742, section 3.2).
  void set_gamma() {
    Json choices = Json::parse(settings_.json(cross_setting));
    if (!choices.is_array()) choices = Json::array({choices});
    bool changed = false;
    for (Json& choice : choices) {
      if (!lacks_gamma(choice)) continue;
      if (choice.is_string()) choice = Json{{"name", choice}};
      choice["gamma"] = length_ratio(*tokenizer_, train_);
      changed = true;
    }
    if (!changed) return;
    const std::string chosen = (choices.size() == 1 ? choices.front() : choices).dump();
    settings_.set_json(cross_setting, chosen, "gamma");
    remark("gamma of the cross-attention: " + chosen);
  }

  Tokens source_tokens(const std::string& line) {
    Tokens tokens = tokens_with_end(*tokenizer_, line);
    const auto limit = static_cast<std::size_t>(settings_.get<std::int64_t>("decoding.max_source_tokens"));
    if (tokens.size() <= limit) return tokens;
    ++cut_lines_;
    const std::int32_t end = tokens.back();
    tokens.resize(limit);
    tokens.back() = end;
    return tokens;
  }

  std::string text_of(const Hypothesis& hypothesis) const {
    std::string text = tokenizer_->decode(hypothesis.tokens);
    // A model may produce any byte, but a line stays a line.
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return text;
  }

  /// One answer for each line; a blank line gives a blank line.
  std::vector<Prediction> translated(std::span<const std::string> lines, const SearchOptions& search,
                                     const PredictOptions& options) {
    const NoGrad no_grad;
    std::vector<Tokens> tokens;
    std::vector<std::size_t> order;  // of the lines that say something, by length, so that little is padded
    for (const std::string& line : lines) {
      tokens.push_back(is_blank(line) ? Tokens() : source_tokens(line));
      if (!tokens.back().empty()) order.push_back(tokens.size() - 1);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return tokens[a].size() < tokens[b].size(); });

    std::vector<Prediction> predictions(lines.size());
    const auto batch_size = static_cast<std::size_t>(settings_.get<std::int64_t>("decoding.batch_size"));
    for (std::size_t begin = 0; begin < order.size(); begin += batch_size) {
      const std::size_t end = std::min(order.size(), begin + batch_size);
      std::vector<Tokens> sources;
      for (std::size_t i = begin; i < end; ++i) sources.push_back(tokens[order[i]]);
      const auto hypotheses = translate(*model_, sources, search);
      for (std::size_t i = begin; i < end; ++i) {
        Prediction& prediction = predictions[order[i]];
        for (const Hypothesis& hypothesis : hypotheses[i - begin])
          prediction.alternatives.push_back({text_of(hypothesis), std::exp(hypothesis.log_probability)});
        prediction.text = prediction.alternatives.front().text;
        prediction.probability = prediction.alternatives.front().probability;
        if (options.capture)
          show_inside(options.first_line + static_cast<std::int64_t>(order[i]), tokens[order[i]],
                      hypotheses[i - begin].front().tokens, *options.capture);
      }
    }
    return predictions;
  }

  void say_what_was_cut() {
    if (cut_lines_ > 0)
      remark(concat_text(cut_lines_, " lines are longer than decoding.max_source_tokens and were cut"));
    cut_lines_ = 0;
  }

  /// The mean over all target tokens, without label smoothing.
  double mean_loss(const ParallelText& text) {
    const NoGrad no_grad;
    const TokenizedText pairs(*tokenizer_, text, evaluation_batches(32));
    double sum = 0;
    std::int64_t count = 0;
    for (const Batch& rows : pairs.plan().epoch(0)) {
      Context context = Context::inference();
      const Loss loss = model_->loss(pairs.batch(rows, model_->device()), 0, context);
      sum += loss.sum.item();
      count += loss.count;
    }
    return sum / static_cast<double>(count);
  }

  Quality quality_of(const ParallelText& text, const SearchOptions& search) {
    std::vector<std::string> translations;
    for (Prediction& prediction : translated(text.source, search, {}))
      translations.push_back(std::move(prediction.text));
    const BleuScore bleu = corpus_bleu(translations, text.target);
    std::size_t exact = 0;
    for (std::size_t i = 0; i < translations.size(); ++i) exact += translations[i] == text.target[i] ? 1 : 0;
    return {bleu.score, mean_loss(text), static_cast<double>(exact) / static_cast<double>(text.size()),
            bleu.signature};
  }

  Measurement measurement_of(const ParallelText& text) {
    const Quality quality = quality_of(text, search_options(settings_, *tokenizer_));
    say_what_was_cut();
    Measurement measurement;
    measurement.metrics = metrics(quality.values());
    measurement.json = Json{{"bleu", rounded(quality.bleu)},
                            {"loss", quality.loss},
                            {"exact", quality.exact},
                            {"sentences", text.size()},
                            {"signature", quality.signature}}
                           .dump();
    return measurement;
  }

  /// One pass over a line and its translation in which the model shows its inside.
  void show_inside(std::int64_t line, const Tokens& source, const Tokens& target, CaptureFile& file) {
    Capture capture;
    Context context = Context::inference();
    context.capture = &capture;
    const TranslationBatch batch = make_translation_batch(
        {&source, 1}, {&target, 1}, tokenizer_->id_of("<s>"), tokenizer_->id_of("</s>"), model_->device());
    const Tensor memory = model_->encode(batch.source, context);
    model_->decode(batch.target, memory, batch.source.mask, context);
    const std::string example = "lines." + std::to_string(line);
    Tokens read = target;
    read.insert(read.begin(), tokenizer_->id_of("<s>"));
    file.add_tokens(example, "source", batch.source.ids, token_texts(*tokenizer_, source));
    file.add_tokens(example, "target", batch.target.ids, token_texts(*tokenizer_, read));
    file.add(example, capture);
  }

  ParallelText train_, valid_;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<EncoderDecoder> model_;
  std::optional<TokenizedText> pairs_;
  EpochBatches<BatchPlan> batches_;
  std::int64_t cut_lines_ = 0;
};

}  // namespace

const TaskKind& translate_task() {
  static const TaskKind kind{
      "translate",
      "Learns to translate from pairs of sentences, measures it, and translates with it",
      Stacks::encoder_decoder,
      kinds,
      translate_settings,
      names_data,
      make_learner<TranslateLearner>};
  return kind;
}

}  // namespace heed
