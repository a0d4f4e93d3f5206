// Matching of pairs of texts: two texts and the class of the pair, such as a question with a sentence that
// answers it or not, or a premise with what does or does not follow (models/pairs.h). Pairs come from tables
// (apps/data/table.h); without them it learns to answer simple questions, made by rule. Pairs with the same first
// text that follow each other are a group, whose right answers are ranked.
//
// Files of a run beside the weights: tokenizer.json and classes.json. Parts of the data: train, valid, test.

#include <algorithm>

#include "heed/apps/data/synthetic.h"
#include "heed/apps/data/table.h"
#include "heed/apps/tasks/class_heads.h"
#include "heed/apps/tasks/pair_input.h"
#include "heed/training/ranking.h"

namespace heed {
namespace {

// F1 needs two classes; MAP and MRR need two classes and groups. Otherwise they are left out.
constexpr MetricKind pair_metrics[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true},
                                       {"f1", true},       {"map", true},   {"mrr", true}};

// --- settings

constexpr const char* for_answers = R"({
  "tokenizer": {"vocabulary": 400}, "model": {"dropout": 0.0},
  "training": {"steps": 400, "batch_tokens": 2048, "evaluate_every": 80, "save_every": 100,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.003}}})";

struct Questions {
  std::int64_t count = 1500;
};
void for_each_setting(auto&& visit, Questions& questions) {
  visit(questions.count, "questions", 1, 1e6,
        "Without data: number of generated questions, with 5 answers each");
}

Settings match_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data",
                   LabelledData{.has_texts = false,
                                .formats = table_formats(),
                                .formats_help = "csv; tsv, in which nothing is quoted; jsonl",
                                .label_help = "Column of the class: number or name; empty: \"label\", or "
                                              "detected and reported"});
  settings.declare("data", Questions());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings{.kind = "words"});
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1}, Stacks::encoder,
                /*has_sparse_features=*/true);
  settings.declare("model", PairModel());
  declare_training(settings, pair_metrics);
  settings.declare("training", ClassSettings());
  settings.declare("prediction", PredictionSettings{.what = "Examples"});
  settings.change_defaults(own_data ? for_pairs : for_answers);
  settings.set_default("training.label_smoothing", "0");
  return settings;
}

LabelledText draw_questions(const Settings& settings) {
  return draw_answer_pairs(settings.read<SplitOptions>("data").seed, settings.read<Questions>("data").count);
}

// --- the task

/// Classes of pairs. Of two classes one is positive, the right answer: it has an F1, and its pairs are
/// ranked in their groups.
class RankingHead : public ClassHead {
 public:
  RankingHead(const TaskEntry& entry, const Settings& settings)
      : ClassHead(entry, settings), positive_label_(settings.read<LabelledData>("data").positive_label) {}

  /// Also throws if the metric that selects the best weights does not apply to the validation data.
  std::vector<std::string> review(const TextParts& parts, const std::string& unit,
                                  const std::string& input) const override {
    if (parts.valid.size() > 0) check_metric(parts.valid);
    return ClassHead::review(parts, unit, input);
  }

  std::vector<std::string> open(const ReadFile& read) override {
    ClassHead::open(read);
    if (!positive_label_.empty()) check_name("data.positive_label", positive_label_, classes_);
    if (!positive_label_.empty() && classes_.size() != 2)
      throw SettingsError(
          concat_text("data.positive_label needs two classes, but the data has ", classes_.size()));
    return classes_;
  }

 protected:
  Figures figures(const ClassQuality& quality, const std::vector<Output>& scores,
                  const LabelledText& text) const override {
    Figures figures = ClassHead::figures(quality, scores, text);
    if (classes_.size() != 2) return figures;
    const std::size_t positive = positive_label_ == classes_.front() ? 0 : 1;
    figures.values.push_back(quality.classes[positive].f1());
    std::vector<float> positive_scores;
    std::vector<bool> right;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      positive_scores.push_back(scores[i][positive]);
      right.push_back(text.labels[i] == classes_[positive]);
    }
    const AnswerRanking ranking = rank_answers(group_by_first_text(text), positive_scores, right);
    if (ranking.groups <= ranking.only_right) return figures;
    figures.values.insert(figures.values.end(), {ranking.map, ranking.mrr});
    figures.groups = {{"ranked", ranking.groups},
                      {"with_only_right_answers", ranking.only_right},
                      {"without_right_answer", ranking.without_right}};
    return figures;
  }

 private:
  void check_metric(const LabelledText& valid) const {
    const auto name = settings_.read<TrainingSettings>("training").keep_best_by;
    const std::vector<Output> scores(valid.size(), Output(classes_.size(), 0));
    const std::vector<Metric> given = measurement(scores, targets(valid), valid).metrics;
    if (std::ranges::count(given, name, &Metric::name) > 0) return;
    throw SettingsError(concat_text("training.keep_best_by: the validation data gives no ", name,
                                    ": f1 needs two classes; map and mrr need two classes and groups of "
                                    "pairs with the same first text, with right and wrong answers"));
  }

  const std::string positive_label_;  // "": that of the last class
};

}  // namespace

const TaskEntry& match_task() {
  static const TaskEntry entry = make_task_entry<LabelledTask<TextPairInput, RankingHead, draw_questions>>(
      {"match",
       "Trains, evaluates and uses a classifier of pairs of texts",
       Stacks::encoder,
       pair_metrics,
       match_settings,
       names_labelled_data,
       {{"",
         {{"first", "The first text"},
          {"second", "The second text"},
          {"label", "The name of the pair's class", true}}}},
       for_fine_tuning});
  return entry;
}

}  // namespace heed
