#include "heed/tasks/match.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/data/answer_pairs.h"
#include "heed/data/table.h"
#include "heed/tasks/labelled.h"
#include "heed/tasks/pair_tokens.h"
#include "heed/tasks/recipe.h"
#include "heed/training/answer_ranking.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

// F1 is of two classes, MAP and MRR are of two classes with groups: elsewhere they are left out.
constexpr MetricKind kinds[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true},
                                {"f1", true},       {"map", true},   {"mrr", true}};

// --- settings

/// Little data is soon learned by heart: a small model, dropout, decay and averaged weights.
constexpr const char* for_pairs = R"({
  "tokenizer": {"vocabulary": 8000}, "model": {"dropout": 0.3},
  "training": {"steps": 2000, "evaluate_every": 200, "save_every": 200, "ema_decay": 0.99, "patience": 5,
    "optimizer": {"name": "adamw", "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 200, "learning_rate": 0.001}}})";

constexpr const char* for_answers = R"({
  "tokenizer": {"vocabulary": 400}, "model": {"dropout": 0.0},
  "training": {"steps": 400, "batch_tokens": 2048, "evaluate_every": 100, "save_every": 100, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.003}}})";

Settings match_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
  declare_labelled_files(settings, table_formats(), "csv; tsv, in which nothing is quoted; jsonl");
  settings.column("data.first_column", "The first text: number or name; empty: 1, of jsonl \"first\"");
  settings.column("data.second_column", "The second text: number or name; empty: 2, of jsonl \"second\"");
  settings.column("data.label_column", "The class: number or name; empty: 3, of jsonl \"label\"");
  settings.text("data.positive_label", "",
                "Of two classes the one of f1, map and mrr; empty: the last by its bytes, as 1 of 0 and 1");
  declare_parts(settings);
  declare_long_texts(settings);
  settings.integer("data.questions", 1500, 1, 1'000'000,
                   "Without data: how many questions, of 5 answers each");
  declare_tokenizer(settings, 8000, "words");
  TransformerConfig model;
  model.encoder_layers = 1;
  model.width = 64;
  model.feed_forward = 128;
  declare_model(settings, model, Stacks::encoder);
  settings.choice("model.kind", "joint", {"joint", "towers"},
                  "How a pair is read: both texts at once, or each by itself by one encoder");
  declare_training(settings, kinds);
  settings.integer("prediction.batch_size", 64, 1, 1'000'000, "Pairs that are read at a time");
  settings.change_defaults(own_data ? for_pairs : for_answers);
  return settings;
}

LabelledText read_pairs(const Settings& settings, const std::string& path, ReadReport& report) {
  LabelledOptions options = labelled_options(settings, path, "--format tsv, csv or jsonl");
  if (options.format.empty()) options.format = labelled_format(path);
  const auto column = [&](const std::string& name, const char* number) {
    const auto given = settings.get<std::string>("data." + name + "_column");
    return !given.empty() ? given : options.format == "jsonl" ? name : number;
  };
  options.text_columns = {column("first", "1")};
  options.second_column = column("second", "2");
  options.label_column = column("label", "3");
  return read_labelled_text(path, options, &report);
}

// --- the task

class MatchLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override {
    names_labelled_data(settings_);
    check_model<PairMatcher>(config(300, 2), settings_.get<std::int64_t>("training.batch_tokens"),
                             is_joint());
  }

  void read_data() override {
    ReadReport report;
    parts_ = labelled_parts(
        settings_, [&](const std::string& path) { return read_pairs(settings_, path, report); },
        [&] {
          // The pairs do not follow the run's seed: runs with other seeds are compared on the same ones.
          return draw_answer_pairs(static_cast<std::uint64_t>(settings_.get<std::int64_t>("data.split_seed")),
                                   settings_.get<std::int64_t>("data.questions"));
        });
    remark_replaced(report);
  }

  std::map<std::string, std::string> data_digests() const override { return digests_of(parts_); }

  void learn_vocabulary() override {
    std::vector<std::string> texts = PairTokenizer::spaced(parts_.train.texts);
    const std::vector<std::string> seconds = PairTokenizer::spaced(parts_.train.seconds);
    texts.insert(texts.end(), seconds.begin(), seconds.end());
    set_vocabulary(learn_tokenizer(settings_, texts), class_names(parts_.train));
  }

  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->tokenizer().to_json()},
            {"classes.json", classes_to_json(classes_)}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    set_vocabulary(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"),
                   classes_from_json(read("classes.json")));
  }

  void build(Device device) override {
    model_ = make_model<PairMatcher>(
        config(tokenizer_->tokenizer().vocabulary_size(), static_cast<std::int64_t>(classes_.size())),
        settings_.get<std::int64_t>("training.batch_tokens"), device, is_joint());
  }

  void prepare_training() override {
    remark(concat_text(parts_.train.size(), " pairs of ", classes_.size(), " classes to learn from, ",
                       parts_.valid.size(), " to measure with, ", parts_.test.size(),
                       " kept for a test; vocabulary ", tokenizer_->tokenizer().vocabulary_size()));
    for (std::string& text : remarks_on_classes(parts_.train, classes_)) remark(std::move(text));
    labels_ = classes_of(parts_.train, classes_);
    valid_labels_ = classes_of(parts_.valid, classes_);
    pairs_ = tokens_of(parts_.train);
    valid_pairs_ = tokens_of(parts_.valid);
    check_metric();
    const auto [first, second] = lengths(pairs_);
    plan_.emplace(first, second, training_batches(settings_));
    if (const std::string left_out = plan_->left_out_message(); !left_out.empty()) remark(left_out);
  }

  // --- training

  Module& model() override { return *model_; }
  std::string unit() const override { return "pairs"; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
    const auto count = static_cast<std::int64_t>(rows.size());
    const Tensor labels = Tensor::from(pick(labels_, rows), {count}, model_->device());
    return {sum(cross_entropy(model_->logits(model_->batch(pick(pairs_, rows)), context), labels,
                              settings_.get<double>("training.label_smoothing"))),
            count};
  }

  Evaluation evaluate() override {
    if (valid_pairs_.empty()) return {};
    const std::vector<ClassScores> scores = scores_of(valid_pairs_);
    const ClassQuality quality = quality_of(scores, valid_labels_, classes_.size());
    return {metrics_of(quality, ranking_of(scores, parts_.valid)),
            settings_.get<std::string>("training.keep_best_by")};
  }

  // --- use

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    std::vector<Prediction> predictions(lines.size());
    std::vector<TokenPair> pairs;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (is_blank(lines[i])) continue;
      try {
        const std::size_t tab = lines[i].find('\t');
        check(tab != std::string::npos && lines[i].find('\t', tab + 1) == std::string::npos,
              "expected two texts with one tab between them");
        pairs.push_back((*tokenizer_)(lines[i].substr(0, tab), lines[i].substr(tab + 1)));
        places.push_back(i);
      } catch (const Error& error) {
        predictions[i].error = error.what();
      }
    }
    say_what_was_cut();
    const std::vector<ClassScores> scores = scores_of(pairs);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      predictions[places[i]] = prediction_of(scores[i], classes_);
      if (options.capture)
        show_inside(pairs[i], options.first_line + static_cast<std::int64_t>(places[i]), *options.capture);
    }
    return predictions;
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    const LabelledText& part = parts_.valid.size() > 0 ? parts_.valid : parts_.train;
    std::vector<std::string> lines = part.texts;
    for (std::size_t i = 0; i < lines.size(); ++i) lines[i] += "\t" + part.seconds[i];
    return short_lines(lines, count);
  }

  Measurement measure(std::string_view part) override {
    const LabelledText& text = part == "valid" ? parts_.valid : part == "test" ? parts_.test : parts_.train;
    check(text.size() > 0, "the ", part, " part of the run's data is empty: give --data");
    return measurement_of(text);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    ReadReport report;
    const LabelledText text = read_pairs(settings_, files.front(), report);
    remark_replaced(report);
    return measurement_of(text);
  }

 private:
  bool is_joint() const { return settings_.get<std::string>("model.kind") == "joint"; }

  TransformerConfig config(std::int64_t vocabulary, std::int64_t classes) const {
    TransformerConfig config = model_config(settings_);
    config.source_vocabulary = vocabulary;
    config.classes = classes;
    if (is_joint()) config.max_length *= 2;
    return config;
  }

  void set_vocabulary(Tokenizer tokenizer, std::vector<std::string> classes) {
    tokenizer_.emplace(std::move(tokenizer), settings_);
    classes_ = std::move(classes);
    const auto positive = settings_.get<std::string>("data.positive_label");
    if (positive.empty()) return;
    check_name("data.positive_label", positive, classes_);
    if (classes_.size() != 2)
      throw SettingsError(
          concat_text("data.positive_label is of two classes, but the data has ", classes_.size()));
  }

  std::vector<TokenPair> tokens_of(const LabelledText& text) {
    std::vector<TokenPair> pairs;
    std::int64_t empty = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      try {
        pairs.push_back((*tokenizer_)(text.texts[i], text.seconds[i]));
      } catch (Error& error) {
        error.add_context(text.places[i] + ": ");
        throw;
      }
      if (is_blank(text.texts[i]) || is_blank(text.seconds[i])) ++empty;
    }
    say_what_was_cut();
    if (empty > 0) remark(concat_text(empty, " pairs have a text that says nothing"));
    return pairs;
  }

  void say_what_was_cut() {
    if (std::string cut = tokenizer_->take_cut_message(); !cut.empty()) remark(std::move(cut));
  }

  static std::array<std::vector<std::int32_t>, 2> lengths(const std::vector<TokenPair>& pairs) {
    std::array<std::vector<std::int32_t>, 2> lengths;
    for (const TokenPair& pair : pairs) {
      lengths[0].push_back(static_cast<std::int32_t>(pair.first.tokens.size()));
      lengths[1].push_back(static_cast<std::int32_t>(pair.second.tokens.size()));
    }
    return lengths;
  }

  /// The scores of each pair, in their order; pairs of like length are read together.
  std::vector<ClassScores> scores_of(const std::vector<TokenPair>& pairs) {
    const NoGrad no_grad;
    std::vector<ClassScores> scores(pairs.size());
    if (pairs.empty()) return scores;
    const auto [first, second] = lengths(pairs);
    const BatchPlan plan(first, second,
                         evaluation_batches(settings_.get<std::int64_t>("prediction.batch_size")));
    for (const Batch& rows : plan.epoch(0)) {
      Context context = Context::inference();
      const Tensor logits = model_->logits(model_->batch(pick(pairs, rows)), context);
      const std::vector<float> values = log_softmax(logits, -1).to_vector<float>();  // [B, classes]
      auto next = values.begin();
      for (const std::int32_t row : rows) {
        scores[static_cast<std::size_t>(row)].assign(next, next + logits.size(1));
        next += logits.size(1);
      }
    }
    return scores;
  }

  std::size_t positive_class() const {
    const auto name = settings_.get<std::string>("data.positive_label");
    return name.empty() || name == classes_.back() ? classes_.size() - 1 : 0;
  }

  AnswerRanking ranking_of(const std::vector<ClassScores>& scores, const LabelledText& text) const {
    if (classes_.size() != 2) return {};
    const std::size_t positive = positive_class();
    std::vector<float> of_positive;
    std::vector<bool> right;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      of_positive.push_back(scores[i][positive]);
      right.push_back(text.labels[i] == classes_[positive]);
    }
    return rank_answers(groups_of(text), of_positive, right);
  }

  /// Whether there is anything to rank: a group with a right and a wrong answer.
  static bool ranks(const AnswerRanking& ranking) { return ranking.groups > ranking.only_right; }

  /// Those that say something of this data.
  std::vector<Metric> metrics_of(const ClassQuality& quality, const AnswerRanking& ranking) const {
    const bool two = classes_.size() == 2;
    const double f1 = two ? quality.classes[positive_class()].f1() : 0;
    std::vector<Metric> all = metrics(
        std::vector<double>{quality.accuracy, quality.loss, quality.macro_f1, f1, ranking.map, ranking.mrr});
    all.resize(ranks(ranking) ? 6 : two ? 4 : 3);
    return all;
  }

  /// Throws when the best weights are to be kept by a figure that the validation data does not give.
  void check_metric() const {
    if (parts_.valid.size() == 0) return;
    const auto name = settings_.get<std::string>("training.keep_best_by");
    const std::vector<ClassScores> scores(parts_.valid.size(), ClassScores(classes_.size(), 0));
    const std::vector<Metric> given =
        metrics_of(quality_of(scores, valid_labels_, classes_.size()), ranking_of(scores, parts_.valid));
    if (std::ranges::any_of(given, [&](const Metric& metric) { return metric.name == name; })) return;
    throw SettingsError(
        concat_text("training.keep_best_by: the validation data gives no ", name,
                    ": f1 is of two classes, map and mrr of two classes and groups of pairs with the "
                    "same first text, with right and wrong answers"));
  }

  Measurement measurement_of(const LabelledText& text) {
    const std::vector<std::int32_t> labels = classes_of(text, classes_);
    const std::vector<ClassScores> scores = scores_of(tokens_of(text));
    const ClassQuality quality = quality_of(scores, labels, classes_.size());
    const AnswerRanking ranking = ranking_of(scores, text);
    Measurement measurement =
        class_measurement(metrics_of(quality, ranking), quality, scores, labels, text, classes_);
    if (!ranks(ranking)) return measurement;
    Json json = Json::parse(measurement.json);
    json["groups"] = {{"ranked", ranking.groups},
                      {"with_only_right_answers", ranking.only_right},
                      {"without_right_answer", ranking.without_right}};
    measurement.json = json.dump();
    return measurement;
  }

  /// One pass over a pair in which the model shows its inside.
  void show_inside(const TokenPair& pair, std::int64_t line, CaptureFile& file) {
    const NoGrad no_grad;
    Capture capture;
    Context context = Context::inference();
    context.capture = &capture;
    const PairBatch batch = model_->batch({&pair, 1});
    model_->logits(batch, context);
    const std::string example = "lines." + std::to_string(line);
    Tokens tokens = pair.first.tokens;
    tokens.insert(tokens.end(), pair.second.tokens.begin(), pair.second.tokens.end());
    file.add_tokens(example, "tokens", batch.tokens.ids, token_texts(tokenizer_->tokenizer(), tokens));
    file.add(example, capture);
  }

  TextParts parts_;
  std::optional<PairTokenizer> tokenizer_;
  std::vector<std::string> classes_;
  std::unique_ptr<PairMatcher> model_;

  std::vector<TokenPair> pairs_, valid_pairs_;
  std::vector<std::int32_t> labels_, valid_labels_;
  std::optional<BatchPlan> plan_;
  EpochBatches<BatchPlan> batches_;
};

}  // namespace

const TaskKind& match_task() {
  static const TaskKind kind{
      "match",
      "Learns to tell classes of pairs of texts, measures it, and labels pairs with it",
      Stacks::encoder,
      kinds,
      match_settings,
      names_labelled_data,
      make_learner<MatchLearner>};
  return kind;
}

}  // namespace heed
