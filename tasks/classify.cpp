#include "heed/tasks/classify.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/json_text.h"
#include "heed/data/labelled_text.h"
#include "heed/data/listops.h"
#include "heed/models/encoder_classifier.h"
#include "heed/tasks/data.h"
#include "heed/tasks/recipe.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr MetricKind kinds[] = {{"accuracy", true}, {"loss", false}, {"macro_f1", true}};

// --- settings

void declare_data(Settings& settings) {
  settings.text("data.file", "", "Labelled texts to learn from: a file (plain or gzip) or a folder");
  settings.text("data.valid", "",
                "Labelled texts to measure progress on; empty: a part of data.file is held out");
  settings.text("data.test", "",
                "Labelled texts kept for a test; empty: a part of data.file, see data.test_fraction");
  std::vector<std::string> formats = labelled_formats();
  formats.insert(formats.begin(), "");
  settings.choice(
      "data.format", "", formats,
      "lines: label, space, text; csv; tsv; folders: one for each class, a file for each text; empty: by "
      "the name, where it tells");
  declare_text(settings);
  settings.integer("data.label_column", 1, 1, 10'000, "csv and tsv: the column of the label, from 1");
  settings.integers("data.text_columns",
                    "csv and tsv: the columns of the text, joined by a space; empty: all others");
  settings.flag("data.header", false, "csv and tsv: the first line names the columns");
  settings.number("data.valid_fraction", 0.1, 0, 1,
                  "Share of data.file that is held out to measure progress on");
  settings.number("data.test_fraction", 0.0, 0, 1, "Share of data.file that is held out for a test");
  settings.integer("data.split_seed", 1, 0, INT64_MAX,
                   "Seed of what is held out, and of the ListOps expressions");
  settings.flag("data.stratified", false, "Whether every class is held out by the same share");
  declare_long_texts(settings);
  settings.integer("data.listops.count", 20000, 1, 100'000'000, "Without data: how many ListOps expressions");
  settings.integer("data.listops.max_depth", 4, 1, 1000, "Of an expression");
  settings.integer("data.listops.max_arguments", 5, 2, 1000, "Of an operator");
  settings.integer("data.listops.longer_than", 3, 0, 1'000'000, "Length of an expression: more than this");
  settings.integer("data.listops.shorter_than", 30, 1, 1'000'000, "Length of an expression: less than this");
}

/// A few thousand texts are soon learned by heart: what helps is dropout, decay and averaged weights.
constexpr const char* for_texts = R"({
  "tokenizer": {"vocabulary": 8000}, "model": {"dropout": 0.3},
  "training": {"steps": 2000, "evaluate_every": 200, "save_every": 200, "ema_decay": 0.99,
    "optimizer": {"name": "adamw", "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 200, "learning_rate": 0.001}}})";

constexpr const char* for_listops = R"({
  "tokenizer": {"vocabulary": 290}, "model": {"width": 64, "feed_forward": 128, "dropout": 0.0, "norm": "pre"},
  "training": {"steps": 1500, "batch_tokens": 2048, "evaluate_every": 300, "save_every": 300, "label_smoothing": 0.0,
    "schedule": {"name": "cosine", "warmup_steps": 100, "learning_rate": 0.003}}})";

Settings classify_settings(bool own_data) {
  Settings settings;
  declare_runtime(settings);
  declare_data(settings);
  declare_tokenizer(settings, 8000);
  TransformerConfig model;
  model.encoder_layers = 2;
  model.width = 128;
  model.feed_forward = 256;
  declare_model(settings, model, Stacks::encoder);
  declare_training(settings, kinds);
  settings.choice("training.class_weights", "equal", {"equal", "balanced"},
                  "Whether the texts of a rare class count more, so that all classes weigh the same");
  settings.integer("prediction.batch_size", 64, 1, 1'000'000, "Texts that are read at a time");
  settings.change_defaults(own_data ? for_texts : for_listops);
  return settings;
}

bool names_data(const Settings& settings) {
  const auto given = [&](const char* name) { return !settings.get<std::string>(name).empty(); };
  if (!given("data.file") && (given("data.valid") || given("data.test")))
    throw SettingsError(
        "--valid and --test (data.valid, data.test) need --data (data.file), the texts to learn from");
  return given("data.file");
}

// --- data

LabelledText read_texts(const Settings& settings, const std::string& path, ReadReport& report) {
  LabelledOptions options;
  options.format = settings.get<std::string>("data.format");
  if (options.format.empty() && fs::is_regular_file(path) && labelled_format(path).empty())
    throw SettingsError(
        path +
        ": its name does not say how it is laid out; give --format lines (a label, a space and a text "
        "on each line), --format csv or --format tsv");
  options.text = text_options(settings);
  options.label_column = settings.get<std::int64_t>("data.label_column");
  options.text_columns = settings.get<std::vector<std::int64_t>>("data.text_columns");
  options.header = settings.get<bool>("data.header");
  return read_labelled_text(path, options, &report);
}

LabelledText draw_expressions(const Settings& settings) {
  const auto integer = [&](const char* name) {
    return settings.get<std::int64_t>(std::string("data.listops.") + name);
  };
  ListOpsRule rule;
  rule.max_depth = integer("max_depth");
  rule.max_arguments = integer("max_arguments");
  rule.longer_than = integer("longer_than");
  rule.shorter_than = integer("shorter_than");
  // The texts do not follow the run's seed: runs with other seeds are compared on the same ones.
  return draw_listops(static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed")),
                      integer("count"), rule);
}

TextParts read_parts(const Settings& settings, ReadReport& report) {
  SplitOptions options;
  options.valid_fraction = settings.get<double>("data.valid_fraction");
  options.test_fraction = settings.get<double>("data.test_fraction");
  options.seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed"));
  options.stratified = settings.get<bool>("data.stratified");
  if (!names_data(settings)) return split_text(draw_expressions(settings), options);
  const auto valid = settings.get<std::string>("data.valid"), test = settings.get<std::string>("data.test");
  if (!valid.empty()) options.valid_fraction = 0;
  if (!test.empty()) options.test_fraction = 0;
  TextParts parts = split_text(read_texts(settings, settings.get<std::string>("data.file"), report), options);
  if (!valid.empty()) parts.valid = read_texts(settings, valid, report);
  if (!test.empty()) parts.test = read_texts(settings, test, report);
  return parts;
}

/// "4512 bad (45 %), 5488 good"; of many classes the largest.
std::string class_counts(const LabelledText& text, const std::vector<std::string>& classes) {
  std::vector<std::pair<std::size_t, std::string>> counts;
  for (const std::string& name : classes)
    counts.emplace_back(static_cast<std::size_t>(std::count(text.labels.begin(), text.labels.end(), name)),
                        name);
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string result;
  const std::size_t shown = std::min<std::size_t>(counts.size(), 10);
  for (std::size_t i = 0; i < shown; ++i)
    result += concat_text(i == 0 ? "" : ", ", '"', counts[i].second.substr(0, 40), "\" ", counts[i].first);
  if (shown < counts.size()) result += concat_text(" and ", counts.size() - shown, " more");
  return result;
}

// --- measuring

/// How well one class is found.
struct ClassQuality {
  std::int64_t texts = 0, predicted = 0, right = 0;
};

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double f1_of(const ClassQuality& one) {
  return share(2 * one.right, one.texts + one.predicted);
}

/// The logarithm of the probability of each class.
using ClassScores = std::vector<float>;

std::size_t best_class(const ClassScores& scores) {
  return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

std::vector<std::string> classes_from_json(const std::string& text) {
  const Json names = parse_json<Json>(text, "classes.json", 2);
  check(names.is_array() && names.size() >= 2 &&
            std::all_of(names.begin(), names.end(), [](const Json& name) { return name.is_string(); }),
        "classes.json: expected a list of the names of at least two classes");
  auto classes = names.get<std::vector<std::string>>();
  check(std::is_sorted(classes.begin(), classes.end()),
        "classes.json: the classes are not in the order of their bytes");
  return classes;
}

class ClassifyLearner : public Learner {
 public:
  using Learner::Learner;

  void check_settings() const override {
    names_data(settings_);
    check_model<EncoderClassifier>(config(300, 2), settings_.get<std::int64_t>("training.batch_tokens"));
  }

  void read_data() override {
    ReadReport report;
    parts_ = read_parts(settings_, report);
    remark_replaced(report);
  }

  std::map<std::string, std::string> data_digests() const override {
    std::map<std::string, std::string> digests;
    const auto add = [&](const char* part, const LabelledText& text) {
      digests[part] = digest_of_texts({text.texts, text.labels});
    };
    add("train", parts_.train);
    add("valid", parts_.valid);
    add("test", parts_.test);
    return digests;
  }

  void learn_vocabulary() override {
    set_vocabulary(learn_tokenizer(settings_, parts_.train.texts), class_names(parts_.train));
  }

  std::map<std::string, std::string> files() const override {
    return {{"tokenizer.json", tokenizer_->tokenizer().to_json()},
            {"classes.json", Json(classes_).dump(2) + "\n"}};
  }

  void open_files(const std::function<std::string(std::string_view)>& read) override {
    set_vocabulary(Tokenizer::from_json(read("tokenizer.json"), "tokenizer.json"),
                   classes_from_json(read("classes.json")));
  }

  void build(Device device) override {
    model_ = make_model<EncoderClassifier>(
        config(tokenizer_->tokenizer().vocabulary_size(), static_cast<std::int64_t>(classes_.size())),
        settings_.get<std::int64_t>("training.batch_tokens"), device);
  }

  void prepare_training() override {
    describe_data();
    labels_ = classes_of(parts_.train, classes_);
    valid_labels_ = classes_of(parts_.valid, classes_);
    if (settings_.get<std::string>("training.class_weights") == "balanced") weights_ = balanced_weights();
    texts_ = tokens_of(parts_.train);
    valid_texts_ = tokens_of(parts_.valid);
    plan_.emplace(lengths_of(texts_), std::span<const std::int32_t>(), training_batches(settings_));
    if (const std::string left_out = plan_->left_out_message(); !left_out.empty()) remark(left_out);
  }

  // --- training

  Module& model() override { return *model_; }
  std::string unit() const override { return "texts"; }
  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
    if (!weights_.empty()) return weighted_loss(rows, context);
    return model_->loss(make_classification_batch(pick(texts_, rows), pick(labels_, rows), model_->device()),
                        settings_.get<double>("training.label_smoothing"), context);
  }

  Evaluation evaluate() override {
    if (valid_texts_.empty()) return {};
    return evaluation(quality_of(scores_of(valid_texts_), valid_labels_).values());
  }

  // --- use

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    std::vector<Prediction> predictions(lines.size());
    std::vector<Tokens> texts;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (is_blank(lines[i])) continue;
      try {
        texts.push_back((*tokenizer_)(lines[i]));
        places.push_back(i);
      } catch (const Error& error) {
        predictions[i].error = error.what();
      }
    }
    say_what_was_cut();
    const std::vector<ClassScores> scores = scores_of(texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      predictions[places[i]] = prediction_of(scores[i]);
      if (options.capture)
        show_inside(texts[i], options.first_line + static_cast<std::int64_t>(places[i]), *options.capture);
    }
    return predictions;
  }

  Measurement measure(std::string_view part) override {
    const LabelledText& text = part == "valid" ? parts_.valid : part == "test" ? parts_.test : parts_.train;
    check(text.size() > 0, "the ", part, " part of the run's data is empty: give --data");
    return measurement_of(text);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    ReadReport report;
    const LabelledText text = read_texts(settings_, files.front(), report);
    remark_replaced(report);
    return measurement_of(text);
  }

 private:
  struct Quality {
    double accuracy = 0, loss = 0, macro_f1 = 0;
    std::vector<ClassQuality> classes;
    std::vector<double> values() const { return {accuracy, loss, macro_f1}; }  // in the order of `kinds`
  };

  TransformerConfig config(std::int64_t vocabulary, std::int64_t classes) const {
    TransformerConfig config = model_config(settings_);
    config.source_vocabulary = vocabulary;
    config.classes = classes;
    return config;
  }

  void set_vocabulary(Tokenizer tokenizer, std::vector<std::string> classes) {
    tokenizer_.emplace(std::move(tokenizer), settings_);
    classes_ = std::move(classes);
  }

  std::vector<Tokens> tokens_of(const LabelledText& text) {
    std::vector<Tokens> tokens = (*tokenizer_)(text.texts, text.places);
    say_what_was_cut();
    return tokens;
  }

  void say_what_was_cut() {
    if (std::string cut = tokenizer_->take_cut_message(); !cut.empty()) remark(std::move(cut));
  }

  void describe_data() {
    remark(concat_text(parts_.train.size(), " texts of ", classes_.size(), " classes to learn from, ",
                       parts_.valid.size(), " to measure with, ", parts_.test.size(),
                       " kept for a test; vocabulary ", tokenizer_->tokenizer().vocabulary_size()));
    remark("classes: " + class_counts(parts_.train, classes_));
    std::vector<std::string> rare;
    for (const std::string& name : classes_)
      if (std::count(parts_.train.labels.begin(), parts_.train.labels.end(), name) < 5) rare.push_back(name);
    if (rare.empty()) return;
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(rare.size(), 5); ++i)
      names += (i == 0 ? "\"" : ", \"") + rare[i].substr(0, 40) + "\"";
    remark(concat_text(rare.size(), rare.size() == 1 ? " class has" : " classes have",
                       " fewer than 5 texts (", names, rare.size() > 5 ? ", ..." : "",
                       "): is the label where data.format, data.label_column and data.header say?"));
  }

  /// The weight of each class: texts / (classes * texts of it), so that the mean over the texts is 1.
  std::vector<float> balanced_weights() const {
    std::vector<double> counts(classes_.size(), 0);
    for (const std::int32_t label : labels_) ++counts[static_cast<std::size_t>(label)];
    std::vector<float> weights;
    for (const double count : counts)
      weights.push_back(static_cast<float>(static_cast<double>(labels_.size()) /
                                           (static_cast<double>(counts.size()) * count)));
    return weights;
  }

  /// sum_i w(label_i) cross_entropy_i
  Loss weighted_loss(const Batch& rows, Context& context) {
    const std::vector<std::int32_t> labels = pick(labels_, rows);
    std::vector<float> weights;
    for (const std::int32_t label : labels) weights.push_back(weights_[static_cast<std::size_t>(label)]);
    const auto batch = make_classification_batch(pick(texts_, rows), labels, model_->device());
    const Tensor losses = cross_entropy(model_->logits(batch.input, context), batch.labels,
                                        settings_.get<double>("training.label_smoothing"));
    const auto count = static_cast<std::int64_t>(rows.size());
    return {sum(losses * Tensor::from(weights, {count}, model_->device())), count};
  }

  /// The scores of each text, in their order; texts of like length are read together.
  std::vector<ClassScores> scores_of(const std::vector<Tokens>& texts) {
    const NoGrad no_grad;
    std::vector<ClassScores> scores(texts.size());
    if (texts.empty()) return scores;
    const BatchPlan plan(lengths_of(texts), {},
                         evaluation_batches(settings_.get<std::int64_t>("prediction.batch_size")));
    for (const Batch& rows : plan.epoch(0)) {
      Context context = Context::inference();
      const Tensor logits = model_->logits(pad_tokens(pick(texts, rows), model_->device()), context);
      const std::vector<float> values = log_softmax(logits, -1).to_vector<float>();  // [B, classes]
      auto first = values.begin();
      for (const std::int32_t row : rows) {
        const auto end = first + logits.size(1);
        scores[static_cast<std::size_t>(row)].assign(first, end);
        first = end;
      }
    }
    return scores;
  }

  Prediction prediction_of(const ClassScores& scores) const {
    Prediction prediction;
    for (std::size_t i = 0; i < scores.size(); ++i)
      prediction.alternatives.push_back({classes_[i], std::exp(static_cast<double>(scores[i]))});
    const std::size_t best = best_class(scores);
    prediction.text = classes_[best];
    prediction.probability = prediction.alternatives[best].probability;
    std::stable_sort(prediction.alternatives.begin(), prediction.alternatives.end(),
                     [](const auto& a, const auto& b) { return a.probability > b.probability; });
    return prediction;
  }

  Quality quality_of(const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels) const {
    Quality quality;
    quality.classes.resize(classes_.size());
    const auto count = static_cast<double>(scores.size());
    std::int64_t all_right = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto label = static_cast<std::size_t>(labels[i]);
      const std::size_t best = best_class(scores[i]);
      const std::int64_t right = best == label ? 1 : 0;
      ++quality.classes[label].texts;
      ++quality.classes[best].predicted;
      quality.classes[best].right += right;
      all_right += right;
      quality.loss -= static_cast<double>(scores[i][label]) / count;
    }
    quality.accuracy = static_cast<double>(all_right) / count;
    for (const ClassQuality& one : quality.classes)
      quality.macro_f1 += f1_of(one) / static_cast<double>(classes_.size());
    return quality;
  }

  Measurement measurement_of(const LabelledText& text) {
    const std::vector<std::int32_t> labels = classes_of(text, classes_);
    const std::vector<ClassScores> scores = scores_of(tokens_of(text));
    const Quality quality = quality_of(scores, labels);
    Json classes = Json::object();
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      const ClassQuality& one = quality.classes[i];
      classes[classes_[i]] = {{"texts", one.texts},
                              {"precision", rounded(share(one.right, one.predicted))},
                              {"recall", rounded(share(one.right, one.texts))},
                              {"f1", rounded(f1_of(one))}};
    }
    Measurement measurement;
    measurement.metrics = metrics(quality.values());
    measurement.json = Json{{"accuracy", rounded(quality.accuracy)},
                            {"loss", quality.loss},
                            {"macro_f1", rounded(quality.macro_f1)},
                            {"texts", text.size()},
                            {"classes", std::move(classes)}}
                           .dump();
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const std::size_t best = best_class(scores[i]);
      if (static_cast<std::int32_t>(best) != labels[i])
        measurement.mistakes.push_back({text.places[i], text.texts[i], text.labels[i], classes_[best],
                                        std::exp(static_cast<double>(scores[i][best]))});
    }
    std::stable_sort(measurement.mistakes.begin(), measurement.mistakes.end(),
                     [](const Mistake& a, const Mistake& b) { return a.probability > b.probability; });
    return measurement;
  }

  /// One pass over a text in which the model shows its inside.
  void show_inside(const Tokens& tokens, std::int64_t line, CaptureFile& file) {
    const NoGrad no_grad;
    Capture capture;
    Context context = Context::inference();
    context.capture = &capture;
    const PaddedTokens input = pad_tokens({&tokens, 1}, model_->device());
    model_->logits(input, context);
    const std::string example = "lines." + std::to_string(line);
    file.add_tokens(example, "tokens", input.ids, token_texts(tokenizer_->tokenizer(), tokens));
    file.add(example, capture);
  }

  TextParts parts_;
  std::optional<BoundedTokenizer> tokenizer_;
  std::vector<std::string> classes_;
  std::unique_ptr<EncoderClassifier> model_;

  std::vector<Tokens> texts_, valid_texts_;
  std::vector<std::int32_t> labels_, valid_labels_;
  std::vector<float> weights_;  // of the classes; empty: all alike
  std::optional<BatchPlan> plan_;
  EpochBatches<BatchPlan> batches_;
};

}  // namespace

const TaskKind& classify_task() {
  static const TaskKind kind{"classify",
                             "Learns to tell classes of texts, measures it, and labels texts with it",
                             Stacks::encoder,
                             kinds,
                             classify_settings,
                             names_data,
                             make_learner<ClassifyLearner>};
  return kind;
}

}  // namespace heed
