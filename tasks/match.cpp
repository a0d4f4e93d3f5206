// Matching of pairs of texts: two texts and the class of the pair, such as a question with a sentence that
// answers it or not, or a premise with what does or does not follow (models/pairs.h). Pairs come from tables
// (data/table.h); without them it learns to answer simple questions, made by rule. Pairs with the same first
// text that follow each other are a group, whose right answers are ranked.
//
// Files of a run beside the weights: tokenizer.json and classes.json, the names of the classes in the order
// of the model's outputs. Parts of the data: train, valid, test.

#include <algorithm>
#include <array>

#include "heed/data/pairs_by_rule.h"
#include "heed/data/table.h"
#include "heed/tasks/labelled.h"
#include "heed/tasks/pair_tokens.h"
#include "heed/tasks/recipe.h"
#include "heed/training/ranking.h"

namespace heed {
namespace {

// F1 is of two classes, MAP and MRR are of two classes with groups: elsewhere they are left out.
constexpr MetricKind pair_metrics[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true},
                                       {"f1", true},       {"map", true},   {"mrr", true}};

// --- settings

/// Little data is soon learned by heart: a small model, dropout, decay and averaged weights.
constexpr const char* for_pairs = R"({
  "tokenizer": {"vocabulary": 8000}, "model": {"dropout": 0.3, "word_pairs": 131072},
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
  declare_training(settings, pair_metrics);
  declare_classes(settings);
  settings.change_defaults(own_data ? for_pairs : for_answers);
  return settings;
}

// --- the task

class MatchLearner : public LabelledLearner<TokenPair> {
 public:
  using LabelledLearner::LabelledLearner;

  void check_settings() const override {
    names_labelled_data(settings_);
    check_model<PairMatcher>(config(300, 2), settings_.get<std::int64_t>("training.batch_tokens"),
                             is_joint());
  }

  void learn_vocabulary() override {
    const TextSource texts = [&](const std::function<void(std::string_view)>& take) {
      for (const TextList* list : {&parts_.train.texts, &parts_.train.seconds})
        for (const std::string_view text : *list) take(PairTokenizer::spaced(text));
    };
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
    LabelledLearner::prepare_training();
    check_metric();
  }

  Module& model() override { return *model_; }
  std::string unit() const override { return "pairs"; }

 protected:
  LabelledText read_file(const std::string& path, ReadReport& report) const override {
    LabelledOptions options = labelled_options(settings_, path, "--format tsv, csv or jsonl");
    if (options.format.empty()) options.format = labelled_format(path);
    const auto column = [&](const std::string& name, const char* number) {
      const auto given = settings_.get<std::string>("data." + name + "_column");
      return !given.empty() ? given : options.format == "jsonl" ? name : number;
    };
    options.text_columns = {column("first", "1")};
    options.second_column = column("second", "2");
    options.label_column = column("label", "3");
    return read_labelled_text(path, options, &report);
  }

  /// The pairs do not follow the run's seed: runs with other seeds are compared on the same ones.
  LabelledText made_by_rule() const override {
    return draw_answer_pairs(static_cast<std::uint64_t>(settings_.get<std::int64_t>("data.split_seed")),
                             settings_.get<std::int64_t>("data.questions"));
  }

  TokenPair example_of_line(const std::string& line) override {
    const std::size_t tab = line.find('\t');
    check(tab != std::string::npos && line.find('\t', tab + 1) == std::string::npos,
          "expected two texts with one tab between them");
    return (*tokenizer_)(line.substr(0, tab), line.substr(tab + 1));
  }

  std::vector<TokenPair> examples_of(const LabelledText& text) override {
    std::vector<TokenPair> pairs;
    std::int64_t empty = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      try {
        pairs.push_back((*tokenizer_)(std::string(text.texts[i]), std::string(text.seconds[i])));
      } catch (Error& error) {
        error.add_context(text.places[i] + ": ");
        throw;
      }
      if (is_blank(text.texts[i]) || is_blank(text.seconds[i])) ++empty;
    }
    if (std::string cut = take_cut_message(); !cut.empty()) remark(std::move(cut));
    if (empty > 0) remark(concat_text(empty, " pairs have a text that says nothing"));
    return pairs;
  }

  std::string take_cut_message() override { return tokenizer_->take_cut_message(); }

  std::array<std::vector<std::int32_t>, 2> lengths(const std::vector<TokenPair>& pairs) const override {
    std::array<std::vector<std::int32_t>, 2> lengths;
    for (const TokenPair& pair : pairs) {
      lengths[0].push_back(static_cast<std::int32_t>(pair.first.tokens.size()));
      lengths[1].push_back(static_cast<std::int32_t>(pair.second.tokens.size()));
    }
    return lengths;
  }

  std::string description() const override {
    return concat_text("vocabulary ", tokenizer_->tokenizer().vocabulary_size());
  }

  Tensor logits(const std::vector<TokenPair>& pairs, Context& context) override {
    return model_->logits(model_->batch(pairs), context);
  }

  /// The metrics that say something of this data.
  ClassFigures figures(const ClassQuality& quality, const std::vector<ClassScores>& scores,
                       const LabelledText& text) const override {
    const AnswerRanking ranking = ranking_of(scores, text);
    const bool two = classes_.size() == 2, ranks = ranking.groups > ranking.only_right;
    const double f1 = two ? quality.classes[positive_class()].f1() : 0;
    ClassFigures figures{metrics(
        std::vector<double>{quality.accuracy, quality.loss, quality.macro_f1, f1, ranking.map, ranking.mrr})};
    figures.metrics.resize(ranks ? 6 : two ? 4 : 3);
    if (ranks)
      figures.members =
          concat_text(R"("groups":{"ranked":)", ranking.groups, R"(,"with_only_right_answers":)",
                      ranking.only_right, R"(,"without_right_answer":)", ranking.without_right, "}");
    return figures;
  }

  std::vector<Tokens> rows_of(const TokenPair& pair) const override {
    std::vector<Tokens> rows = {pair.first.tokens, pair.second.tokens};
    if (!is_joint()) return rows;
    rows[0].insert(rows[0].end(), rows[1].begin(), rows[1].end());
    rows.pop_back();
    return rows;
  }
  const Tokenizer* tokenizer() const override { return &tokenizer_->tokenizer(); }

 private:
  bool is_joint() const { return settings_.get<std::string>("model.kind") == "joint"; }

  TransformerConfig config(std::int64_t vocabulary, std::int64_t classes) const {
    TransformerConfig config = model_config(trained());
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

  /// Throws when the best weights are to be kept by a figure that the validation data does not give.
  void check_metric() const {
    if (parts_.valid.size() == 0) return;
    const auto name = settings_.get<std::string>("training.keep_best_by");
    const std::vector<ClassScores> scores(parts_.valid.size(), ClassScores(classes_.size(), 0));
    const ClassQuality quality = quality_of(scores, classes_of(parts_.valid, classes_), classes_.size());
    const ClassFigures given = figures(quality, scores, parts_.valid);
    if (std::ranges::any_of(given.metrics, [&](const Metric& metric) { return metric.name == name; })) return;
    throw SettingsError(
        concat_text("training.keep_best_by: the validation data gives no ", name,
                    ": f1 is of two classes, map and mrr of two classes and groups of pairs with the "
                    "same first text, with right and wrong answers"));
  }

  std::optional<PairTokenizer> tokenizer_;
  std::unique_ptr<PairMatcher> model_;
};

}  // namespace

const TaskKind& match_task() {
  static const TaskKind kind{
      "match",
      "Learns to tell classes of pairs of texts, measures it, and labels pairs with it",
      Stacks::encoder,
      pair_metrics,
      match_settings,
      names_labelled_data,
      make_learner<MatchLearner>};
  return kind;
}

}  // namespace heed
