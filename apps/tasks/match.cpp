// Matching of pairs of texts: two texts and the class of the pair, such as a question with a sentence that
// answers it or not, or a premise with what does or does not follow (models/pairs.h). Pairs come from tables
// (data/table.h); without them it learns to answer simple questions, made by rule. Pairs with the same first
// text that follow each other are a group, whose right answers are ranked.
//
// Files of a run beside the weights: tokenizer.json and classes.json, the names of the classes in the order
// of the model's outputs. Parts of the data: train, valid, test.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/pair_tokens.h"
#include "heed/data/pairs_by_rule.h"
#include "heed/data/table.h"
#include "heed/training/ranking.h"

namespace heed {
namespace {

// F1 is of two classes, MAP and MRR are of two classes with groups: elsewhere they are left out.
constexpr MetricKind pair_metrics[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true},
                                       {"f1", true},       {"map", true},   {"mrr", true}};

// --- settings

/// Little data is soon learned by heart: a small model, dropout, decay and averaged weights.
constexpr const char* for_pairs = R"({
  "tokenizer": {"kind": "auto", "vocabulary": 8000}, "model": {"dropout": 0.3, "word_pairs": 131072},
  "training": {"steps": 2000, "evaluate_every": 200, "save_every": 200, "ema_decay": 0.99, "patience": 5,
    "optimizer": {"name": "adamw", "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 200, "learning_rate": 0.001}}})";

constexpr const char* for_answers = R"({
  "tokenizer": {"vocabulary": 400}, "model": {"dropout": 0.0},
  "training": {"steps": 400, "batch_tokens": 2048, "evaluate_every": 80, "save_every": 100, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.003}}})";

struct MatchData {
  LabelledFiles files = {.formats = table_formats(),
                         .formats_help = "csv; tsv, in which nothing is quoted; jsonl"};
  std::string first_column = {}, second_column = {}, label_column = {}, positive_label = {};
  SplitOptions split = {.valid_fraction = 0.1};
  TextLimits limits = {};
  std::int64_t questions = 1500;
};

void for_each_setting(auto&& visit, MatchData& data) {
  const SettingTraits column = {.kind = Setting::Kind::column};
  for_each_setting(visit, data.files);
  visit(data.first_column, "first_column",
        "The first text: number or name; empty: \"first\", or 1 where nothing is called so", column);
  visit(data.second_column, "second_column",
        "The second text: number or name; empty: \"second\", or 2 where nothing is called so", column);
  visit(data.label_column, "label_column",
        "The class: number or name; empty: \"label\", or 3 where nothing is called so", column);
  visit(data.positive_label, "positive_label",
        "Of two classes the one of f1, map and mrr; empty: the last by its bytes, as 1 of 0 and 1");
  for_each_setting(visit, data.split);
  for_each_setting(visit, data.limits);
  visit(data.questions, "questions", 1, 1e6, "Without data: how many questions, of 5 answers each");
}

struct MatchModel {
  enum class Kind { joint, towers } kind = Kind::joint;
};
void for_each_setting(auto&& visit, MatchModel& model) {
  visit(model.kind, "kind", {"joint", "towers"},
        "How a pair is read: both texts at once, or each by itself by one encoder");
}

Settings match_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", MatchData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings{.kind = "words"});
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1}, Stacks::encoder);
  settings.declare("model", MatchModel());
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
    check_model<PairMatcher>(pair_config(300, 2), batch_tokens(), is_joint());
  }

  void learn_vocabulary() override {
    LabelledLearner::learn_vocabulary();
    check_positive_label();
  }
  void open_files(const std::function<std::string(std::string_view)>& read) override {
    LabelledLearner::open_files(read);
    check_positive_label();
  }

  void build(Device device) override {
    const auto classes = static_cast<std::int64_t>(classes_.size());
    model_ =
        make_model<PairMatcher>(pair_config(vocabulary_size(), classes), batch_tokens(), device, is_joint());
  }

  void prepare_training() override {
    LabelledLearner::prepare_training();
    check_metric();
  }

  Module& model() override { return *model_; }
  std::string unit() const override { return "pairs"; }

 protected:
  LabelledText read_file(const std::string& path, ReadReport& report) const override {
    return read_labelled_text(path, table_options(path), &report);
  }
  void read_rows(const std::string& file, const TakeText& take, ReadReport& report) const override {
    read_texts_of_table(file, table_options(file), take, &report);
  }

  /// The pairs do not follow the run's seed: runs with other seeds are compared on the same ones.
  LabelledText made_by_rule() const override {
    const auto data = settings_.read<MatchData>("data");
    return draw_answer_pairs(data.split.seed, data.questions);
  }

  TextSource texts_of(const LabelledText& text) const override {
    return [texts = all_texts(text)](const std::function<void(std::string_view)>& take) {
      texts([&](std::string_view one) { take(PairTokenizer::spaced(one)); });
    };
  }

  void set_tokenizer(Tokenizer tokenizer) override {
    pairs_.emplace(tokenizer, settings_);
    LabelledLearner::set_tokenizer(std::move(tokenizer));
  }
  std::string take_cut_message() override { return pairs_->take_cut_message(); }

  TokenPair input_of_line(const std::string& line) override {
    const std::size_t tab = line.find('\t');
    check(tab != std::string::npos && line.find('\t', tab + 1) == std::string::npos,
          "expected two texts with one tab between them");
    return (*pairs_)(line.substr(0, tab), line.substr(tab + 1));
  }

  std::vector<TokenPair> inputs_of(const LabelledText& text) override {
    std::vector<TokenPair> pairs;
    std::int64_t empty = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      try {
        pairs.push_back((*pairs_)(text.texts[i], text.seconds[i]));
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

  Lengths lengths(const std::vector<TokenPair>& pairs) const override {
    Lengths lengths;
    for (const TokenPair& pair : pairs) {
      lengths[0].push_back(static_cast<std::int32_t>(pair.first.tokens.size()));
      lengths[1].push_back(static_cast<std::int32_t>(pair.second.tokens.size()));
    }
    return lengths;
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

 private:
  LabelledOptions table_options(const std::string& path) const {
    LabelledOptions options = labelled_options(settings_, path, "--format tsv, csv or jsonl");
    if (options.format.empty()) options.format = labelled_format(path);
    const auto column = [&](const std::string& given, const char* name, const char* number) {
      options.usual_names.emplace_back(given.empty() ? name : "");
      return !given.empty() ? given : options.format == "jsonl" ? name : number;
    };
    const auto data = settings_.read<MatchData>("data");
    options.label_column = column(data.label_column, "label", "3");
    options.second_column = column(data.second_column, "second", "2");
    options.text_columns = {column(data.first_column, "first", "1")};
    return options;
  }

  bool is_joint() const { return settings_.read<MatchModel>("model").kind == MatchModel::Kind::joint; }

  TransformerConfig pair_config(std::int64_t vocabulary, std::int64_t classes) const {
    TransformerConfig pair = config(vocabulary, classes);
    if (is_joint()) pair.max_length *= 2;
    return pair;
  }

  void check_positive_label() const {
    const std::string positive = settings_.read<MatchData>("data").positive_label;
    if (positive.empty()) return;
    check_name("data.positive_label", positive, classes_);
    if (classes_.size() != 2)
      throw SettingsError(
          concat_text("data.positive_label is of two classes, but the data has ", classes_.size()));
  }

  std::size_t positive_class() const {
    const std::string name = settings_.read<MatchData>("data").positive_label;
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

  std::optional<PairTokenizer> pairs_;
  std::unique_ptr<PairMatcher> model_;
};

}  // namespace

const TaskKind& match_task() {
  static const TaskKind kind = task_of<MatchLearner>(
      "match", "Learns to tell classes of pairs of texts, measures it, and labels pairs with it",
      Stacks::encoder, pair_metrics, match_settings, names_labelled_data,
      {{"",
        {{"first", "The first text"},
         {"second", "The second text"},
         {"label", "The name of the pair's class", true}}}});
  return kind;
}

}  // namespace heed
