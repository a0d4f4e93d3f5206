// Matching of pairs of texts: two texts and the class of the pair, such as a question with a sentence that
// answers it or not, or a premise with what does or does not follow (models/pairs.h). Pairs come from tables
// (apps/data/table.h); without them it learns to answer simple questions, made by rule. Pairs with the same first
// text that follow each other are a group, whose right answers are ranked.
//
// Files of a run beside the weights: tokenizer.json and classes.json, the names of the classes in the order
// of the model's outputs. Parts of the data: train, valid, test.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/synthetic_pairs.h"
#include "heed/apps/data/table.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/autograd/ops.h"
#include "heed/training/ranking.h"

namespace heed {
namespace {

// F1 needs two classes; MAP and MRR need two classes and groups. Otherwise they are left out.
constexpr MetricKind pair_metrics[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true},
                                       {"f1", true},       {"map", true},   {"mrr", true}};

// --- settings

/// Defaults for little data, which a model soon memorises: a small model, dropout, weight decay,
/// averaged weights and sparse features. There is one evaluation, at the end, as in classify.
constexpr const char* for_pairs = R"({
  "data": {"valid_fraction": 0.05},
  "tokenizer": {"kind": "auto", "vocabulary": 8000},
  "model": {"dropout": 0.3, "sparse_features": 131072},
  "training": {"steps": 1000, "evaluate_every": 1000, "save_every": 500, "ema_decay": 0.99, "label_smoothing": 0.0,
    "optimizer": {"name": "adamw", "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 200, "learning_rate": 0.001}}})";

/// Many pairs take more than the default steps.
constexpr EpochLimit pair_epoch_limit = {1000, 1000, 10'000};

constexpr const char* for_answers = R"({
  "tokenizer": {"vocabulary": 400}, "model": {"dropout": 0.0},
  "training": {"steps": 400, "batch_tokens": 2048, "evaluate_every": 80, "save_every": 100, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.003}}})";

struct MatchData {
  LabelledFiles files = {.formats = table_formats(),
                         .formats_help = "csv; tsv, in which nothing is quoted; jsonl"};
  std::string first_column = {}, second_column = {}, label_column = {}, weight_column = {},
              positive_label = {};
  LabelType label_type = LabelType::unknown;
  SplitOptions split = {.valid_fraction = 0.1, .stratified = true};
  TextLimits limits = {};
  std::int64_t questions = 1500;
};

void for_each_setting(auto&& visit, MatchData& data) {
  const SettingTraits column = {.kind = Setting::Kind::column};
  for_each_setting(visit, data.files);
  visit(data.first_column, "first_column",
        "Column of the first text: number or name; empty: \"first\", or detected and reported", column);
  visit(data.second_column, "second_column",
        "Column of the second text: number or name; empty: \"second\", or detected and reported", column);
  visit(data.label_column, "label_column",
        "Column of the class: number or name; empty: \"label\", or detected and reported", column);
  visit_label_type(visit, data.label_type);
  visit_weight_column(visit, data.weight_column);
  visit(data.positive_label, "positive_label",
        "With two classes: the one that f1, map and mrr measure; empty: the last, such as 1 of 0 and 1");
  for_each_setting(visit, data.split);
  for_each_setting(visit, data.limits);
  visit(data.questions, "questions", 1, 1e6,
        "Without data: number of generated questions, with 5 answers each");
}

struct MatchModel {
  enum class Kind { joint, towers } kind = Kind::joint;
};
void for_each_setting(auto&& visit, MatchModel& model) {
  visit(model.kind, "kind", {"joint", "towers"},
        "joint: the encoder reads both texts at once; towers: one encoder reads each text by itself");
}

Settings match_settings(bool own_data) {
  Settings settings;
  settings.declare("", RuntimeSettings());
  settings.declare("data", MatchData());
  settings.declare("tokenizer", BeginMark());
  settings.declare("tokenizer", VocabularySettings{.kind = "words"});
  declare_model(settings, {.width = 64, .feed_forward = 128, .encoder_layers = 1}, Stacks::encoder,
                /*has_sparse_features=*/true);
  settings.declare("model", MatchModel());
  declare_training(settings, pair_metrics);
  declare_classes(settings);
  settings.change_defaults(own_data ? for_pairs : for_answers);
  return settings;
}

// --- the task

/// The tokens of a pair with its texts.
struct MatchInput {
  TokenPair tokens;
  std::string_view first, second;
};

class MatchLearner : public Learner, public HasOutputs {
 public:
  MatchLearner(const TaskKind& kind, Settings given)
      : Learner(kind, std::move(given)),
        data_(settings_.read<MatchData>("data")),
        batch_size_(settings_.read<PredictionSettings>("prediction").batch_size),
        is_joint_(settings_.read<MatchModel>("model").kind == MatchModel::Kind::joint) {
    unit_ = "pairs";
  }

  void prepare_training() override {
    remark_all(labelled_data_remarks(parts_, parts_, classes_, unit_,
                                     concat_text("vocabulary ", tokenizer_->tokenizer().vocabulary_size())));
    train_ = make_examples(parts_.train);
    valid_ = make_examples(parts_.valid);
    plan_batches(lengths_of_pairs(train_.inputs), training_batches(settings_));
    limit_epochs(is_fine_tuned() ? fine_tuning_epoch_limit : pair_epoch_limit);
    weights_ = example_weights(settings_, parts_.train, train_.targets, classes_.size());
    remark(steps_remark(settings_, batches(0)));
    check_metric();
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.at(epoch, batch);
    return class_loss(logits(pick(train_.inputs, rows), context), pick(train_.targets, rows),
                      batch_weights(weights_, rows), label_smoothing_);
  }

  Evaluation evaluate() override {
    if (valid_.inputs.empty()) return {};
    const std::vector<std::size_t> rows = sampled_rows(parts_.valid, sample());
    const Examples read = picked(valid_, Batch(rows.begin(), rows.end()));
    SparseLinear* const sparse = model_as<PairMatcher>().sparse();
    const std::vector<ClassScores> scores =
        sparse ? fitted_scores(*sparse, outputs(read.inputs, &ClassLogits::side_by_side), read.targets)
               : class_scores(read.inputs);
    return evaluation(measured_scores(scores, read, parts_.valid.picked(rows)).metrics, rows.size(),
                      parts_.valid.size());
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    return answer_lines(
        lines, options, [&](const std::string& line) { return input_of(line); },
        [&](const Inputs& pairs) { return class_predictions(class_scores(pairs), classes_); },
        [&](const MatchInput& pair, const std::string& name, CaptureFile& file) {
          add_pass(file, name, captured([&](Context& context) { logits({pair}, context); }),
                   rows_of(pair.tokens), tokenizer_->tokenizer());
        });
  }

  Tensor line_outputs(std::span<const std::string> lines, Context& context) override {
    return logits(inputs_of_lines(lines, [&](const std::string& line) { return input_of(line); }), context)
        .together();
  }

  static void read_rows(const Settings& settings, const std::string& file, const TakeText& take,
                        ReadReport& report) {
    read_texts_of_table(file, table_options(file, settings), take, &report);
  }

 protected:
  /// Generates the pairs. They do not depend on the run's seed, so that runs with different seeds
  /// are compared on the same pairs.
  std::map<std::string, std::string> read_parts() override {
    parts_ = reported([&](ReadReport& report) {
      return read_labelled_parts(
          settings_, Labels::classes, [&] { return draw_answer_pairs(data_.split.seed, data_.questions); },
          [&](const std::string& path, const Settings& layout) {
            return read_labelled_text(path, table_options(path, layout), &report);
          });
    });
    return digests_of(parts_, [](const LabelledText& text) { return compute_digest(text); });
  }

  NamedFiles learned_files() override {
    const TextSource texts = [all = all_texts(parts_.train)](const auto& take) {
      all([&](std::string_view one) { take(PairTokenizer::spaced(one)); });
    };
    NamedFiles files = learned_tokenizer(texts);
    files["classes.json"] = classes_to_json(learned_classes(kind().name, settings_, parts_.train));
    return files;
  }

  void open(const ReadFile& read) override {
    tokenizer_.emplace(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"), settings_);
    truncation_message_ = [this] { return tokenizer_->take_truncation_message(); };
    classes_ = classes_from_json(read("classes.json"));
    check_positive_label();
  }

  std::unique_ptr<Module> make_model() override {
    TransformerConfig pair =
        encoder_config(tokenizer_ ? tokenizer_->tokenizer().vocabulary_size() : 300,
                       classes_.empty() ? 2 : static_cast<std::int64_t>(classes_.size()));
    if (is_joint_) pair.max_length *= 2;
    return model_of<PairMatcher>(pair, batch_tokens(), is_joint_);
  }

  Measurement measured(const MeasureSource& source) override {
    const auto read = [&](std::span<const std::string> files, const Settings& layout, ReadReport& report) {
      return read_labelled_text(files.front(), table_options(files.front(), layout), &report);
    };
    return measured_data(parts_, source, read, [&](const LabelledText& text) {
      remark(other_labels_remark(classes_, text, unit_));
      return measured_examples(make_examples(text), text);
    });
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    return labelled_lines(shown_part(parts_), count);
  }

 private:
  using Inputs = std::vector<MatchInput>;
  using Examples = TaskExamples<MatchInput, std::int32_t>;

  // --- input

  static LabelledOptions table_options(const std::string& path, const Settings& layout) {
    LabelledOptions options = labelled_options(layout, path, "data.format=tsv, csv or jsonl");
    if (options.format.empty()) options.format = labelled_format(path);
    const auto data = layout.read<MatchData>("data");
    options.pairs = true;
    options.label_column = data.label_column;
    options.second_column = data.second_column;
    if (path == data.files.files.file) options.weight_column = data.weight_column;
    if (!data.first_column.empty()) options.text_columns = {data.first_column};
    return options;
  }

  /// The line must outlive the input.
  MatchInput input_of(const std::string& line) {
    const std::size_t tab = line.find('\t');
    check(tab != std::string::npos && line.find('\t', tab + 1) == std::string::npos,
          "expected two texts with one tab between them");
    const std::string_view first = std::string_view(line).substr(0, tab);
    const std::string_view second = std::string_view(line).substr(tab + 1);
    return {(*tokenizer_)(first, second), first, second};
  }

  Examples make_examples(const LabelledText& text) {
    Examples examples{{}, classes_of(text, with_other_labels(classes_, text))};
    std::int64_t empty = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      try {
        examples.inputs.push_back(
            {(*tokenizer_)(text.texts[i], text.seconds[i]), text.texts[i], text.seconds[i]});
      } catch (Error& error) {
        error.add_context(text.places[i] + ": ");
        throw;
      }
      if (is_blank(text.texts[i]) || is_blank(text.seconds[i])) ++empty;
    }
    if (empty > 0) remark(concat_text(empty, " pairs have a blank text"));
    return examples;
  }

  static Lengths lengths_of_pairs(const Inputs& pairs) {
    Lengths lengths;
    for (const MatchInput& pair : pairs) {
      lengths[0].push_back(static_cast<std::int32_t>(pair.tokens.first.tokens.size()));
      lengths[1].push_back(static_cast<std::int32_t>(pair.tokens.second.tokens.size()));
    }
    return lengths;
  }

  /// Returns the tokens of a pair, with a row for each text that is read separately.
  std::vector<Tokens> rows_of(const TokenPair& pair) const {
    std::vector<Tokens> rows = {pair.first.tokens, pair.second.tokens};
    if (!is_joint_) return rows;
    rows[0].insert(rows[0].end(), rows[1].begin(), rows[1].end());
    rows.pop_back();
    return rows;
  }

  // --- predictions

  ClassLogits logits(const Inputs& pairs, Context& context) {
    auto& model = model_as<PairMatcher>();
    std::vector<TokenPair> tokens;
    for (const MatchInput& pair : pairs) tokens.push_back(pair.tokens);
    const SparseBatch sparse =
        make_sparse_batch(pairs, model, [](const MatchInput& pair, std::int64_t count) {
          return pair_features(pair.first, pair.second, count);
        });
    return model.part_logits(model.batch(tokens), context, sparse);
  }

  std::vector<Output> outputs(const Inputs& inputs, Tensor (ClassLogits::*of_logits)() const) {
    return outputs_of(
        *this, inputs, lengths_of_pairs(inputs), batch_size_,
        [&](const Inputs& batch, Context& context) { return (logits(batch, context).*of_logits)(); });
  }

  std::vector<ClassScores> class_scores(const Inputs& inputs) {
    return outputs(inputs, &ClassLogits::log_probabilities);
  }

  Measurement measured_examples(const Examples& examples, const LabelledText& text) {
    return measured_scores(class_scores(examples.inputs), examples, text);
  }

  Measurement measured_scores(const std::vector<ClassScores>& scores, const Examples& examples,
                              const LabelledText& text) {
    const std::vector<std::string> classes = with_other_labels(classes_, text);
    const ClassQuality quality = measure_quality(scores, examples.targets, classes.size());
    return class_measurement(figures(quality, scores, text), quality, scores, examples.targets, text,
                             classes);
  }

  /// Returns the metrics that apply to this data.
  ClassFigures figures(const ClassQuality& quality, const std::vector<ClassScores>& scores,
                       const LabelledText& text) const {
    const AnswerRanking ranking = make_ranking(scores, text);
    const bool two = classes_.size() == 2, ranks = ranking.groups > ranking.only_right;
    const double f1 = two ? quality.classes[positive_class()].f1() : 0;
    ClassFigures figures{metrics(
        std::vector<double>{quality.accuracy, quality.loss, quality.macro_f1, f1, ranking.map, ranking.mrr})};
    figures.metrics.resize(ranks ? 6 : two ? 4 : 3);
    if (ranks)
      figures.groups = {{"ranked", ranking.groups},
                        {"with_only_right_answers", ranking.only_right},
                        {"without_right_answer", ranking.without_right}};
    return figures;
  }

  void check_positive_label() const {
    const std::string& positive = data_.positive_label;
    if (positive.empty()) return;
    check_name("data.positive_label", positive, classes_);
    if (classes_.size() != 2)
      throw SettingsError(
          concat_text("data.positive_label needs two classes, but the data has ", classes_.size()));
  }

  std::size_t positive_class() const {
    const std::string& name = data_.positive_label;
    return name.empty() || name == classes_.back() ? classes_.size() - 1 : 0;
  }

  AnswerRanking make_ranking(const std::vector<ClassScores>& scores, const LabelledText& text) const {
    if (classes_.size() != 2) return {};
    const std::size_t positive = positive_class();
    std::vector<float> of_positive;
    std::vector<bool> right;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      of_positive.push_back(scores[i][positive]);
      right.push_back(text.labels[i] == classes_[positive]);
    }
    return rank_answers(group_by_first_text(text), of_positive, right);
  }

  /// Throws if the metric that selects the best weights does not apply to the validation data.
  void check_metric() const {
    if (parts_.valid.size() == 0) return;
    const auto name = settings_.get<std::string>("training.keep_best_by");
    const std::vector<ClassScores> scores(parts_.valid.size(), ClassScores(classes_.size(), 0));
    const std::vector<std::string> classes = with_other_labels(classes_, parts_.valid);
    const ClassQuality quality = measure_quality(scores, classes_of(parts_.valid, classes), classes.size());
    const ClassFigures given = figures(quality, scores, parts_.valid);
    if (std::ranges::any_of(given.metrics, [&](const Metric& metric) { return metric.name == name; })) return;
    throw SettingsError(concat_text("training.keep_best_by: the validation data gives no ", name,
                                    ": f1 needs two classes; map and mrr need two classes and groups of "
                                    "pairs with the same first text, with right and wrong answers"));
  }

  const MatchData data_;
  const std::int64_t batch_size_;
  const bool is_joint_;
  TextParts parts_;
  std::optional<PairTokenizer> tokenizer_;
  Examples train_, valid_;
  std::vector<float> weights_;  // of the examples to learn from; empty: all alike
};

}  // namespace

const TaskKind& match_task() {
  static const TaskKind kind =
      make_task_kind<MatchLearner>({"match",
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
  return kind;
}

}  // namespace heed
