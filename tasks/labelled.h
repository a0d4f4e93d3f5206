#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/data/labelled_text.h"
#include "heed/models/module.h"
#include "heed/tasks/data.h"
#include "heed/tasks/learner.h"

// What tasks that tell classes apart have in common: their data, the learner around their model, and how they are
// measured.

namespace heed {

// --- data

/// "data.file", "data.valid", "data.test", "data.format" (one of `formats`, "" for the name's), how texts are read, and
/// "data.header".
void declare_labelled_files(Settings& settings, std::vector<std::string> formats,
                            std::string_view formats_help);
/// "data.valid_fraction", "data.test_fraction", "data.split_seed", "data.stratified", "data.folds", "data.fold".
void declare_parts(Settings& settings);
/// "training.class_weights" and "prediction.batch_size".
void declare_classes(Settings& settings);
/// True when the settings name data; throws a SettingsError when they name validation or test data alone, or folds
/// that make no sense.
bool names_labelled_data(const Settings& settings);
/// The options of the files, but for their columns. Throws a SettingsError when neither the settings nor the name of
/// `path` say how it is laid out; `help` ends the message.
LabelledOptions labelled_options(const Settings& settings, const std::string& path, std::string_view help);
/// The parts of the data: what `read` reads of the files of the settings, or what `draw` makes where they name none.
TextParts labelled_parts(const Settings& settings,
                         const std::function<LabelledText(const std::string& path)>& read,
                         const std::function<LabelledText()>& draw);
std::map<std::string, std::string> digests_of(const TextParts& parts);

/// The classes as a file of a run, and back. Throws an Error for a file that is damaged.
std::string classes_to_json(const std::vector<std::string>& classes);
std::vector<std::string> classes_from_json(const std::string& text);
/// What there is to say about the classes of the training texts: their counts, and which are rare.
std::vector<std::string> remarks_on_classes(const LabelledText& train,
                                            const std::vector<std::string>& classes);
/// A text as a line of input: of a pair both, with a tab between.
std::string text_at(const LabelledText& text, std::size_t index);
/// Throws a SettingsError for labels that are none: more than 200, with fewer than three texts each on average. It names
/// the columns that there are; to be called before anything is built for so many classes.
void check_labels(const LabelledText& text, std::string_view origin);
/// The weight of each class: texts / (classes * texts of it), so that the mean over the texts is 1.
std::vector<float> balanced_weights(const std::vector<std::int32_t>& labels, std::size_t classes);

// --- answers

/// The logarithm of the probability of each class.
using ClassScores = std::vector<float>;
std::size_t best_class(const ClassScores& scores);
/// The best class with its probability, and all others behind it.
Prediction prediction_of(const ClassScores& scores, const std::vector<std::string>& classes);

/// How well classes are told apart.
struct ClassQuality {
  double accuracy = 0, loss = 0;
  /// The mean F1 of the classes that occur among the labels or the answers, as scikit-learn has it.
  double macro_f1 = 0;
  struct One {
    std::int64_t texts = 0, predicted = 0, right = 0;
    bool occurs() const { return texts + predicted > 0; }
    double precision() const;
    double recall() const;
    double f1() const;
  };
  std::vector<One> classes;
  /// [expected][predicted]; of more than 200 classes empty.
  std::vector<std::vector<std::int64_t>> confusion;
};
ClassQuality quality_of(const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                        std::size_t classes);
/// What is said of classes that were told apart: the metrics, and members for the JSON object, "" or `"name":value,...`.
struct ClassFigures {
  std::vector<Metric> metrics;
  std::string members = {};
};
/// What `evaluate` says: the metrics and members, and as JSON behind them "texts", "classes" with precision, recall and
/// F1 of each, and "confusion", the rows expected and the columns predicted, in the order of the classes; and the wrong
/// answers.
Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes);

// --- the learner

/// Learns to tell classes of examples. An Example is what the model reads of one text, pair or image; a task says how it
/// is made of a text and what the model says of a batch of them.
template <class Example>
class LabelledLearner : public Learner {
 public:
  using Learner::Learner;

  void read_data() override {
    ReadReport report;
    parts_ = labelled_parts(
        settings_,
        [&](const std::string& path) {
          LabelledText text = read_file(path, report);
          if (path == settings_.get<std::string>("data.file")) check_labels(text, path);
          return text;
        },
        [&] { return made_by_rule(); });
    remark_on_reading(report);
  }

  std::map<std::string, std::string> data_digests() const override { return digests_of(parts_); }

  void prepare_training() override {
    remark(concat_text(parts_.train.size(), ' ', unit(), " of ", classes_.size(), " classes to learn from, ",
                       parts_.valid.size(), " to measure with, ", parts_.test.size(), " kept for a test; ",
                       description()));
    for (std::string& text : remarks_on_classes(parts_.train, classes_)) remark(std::move(text));
    labels_ = classes_of(parts_.train, classes_);
    valid_labels_ = classes_of(parts_.valid, classes_);
    if (settings_.get<std::string>("training.class_weights") == "balanced")
      weights_ = balanced_weights(labels_, classes_.size());
    examples_ = examples_of(parts_.train);
    valid_examples_ = examples_of(parts_.valid);
    const auto [first, second] = lengths(examples_);
    plan_.emplace(first, second, training_batches(settings_));
    if (const std::string left_out = plan_->left_out_message(); !left_out.empty()) remark(left_out);
    const auto steps = settings_.get<std::int64_t>("training.steps");
    if (settings_.get<std::int64_t>("training.epochs") == 0 && steps < batches(0))
      remark(concat_text("training.steps = ", steps, " end before all ", batches(0),
                         " batches were read once: this much data deserves more steps"));
  }

  std::int64_t batches(std::int64_t epoch) override {
    return static_cast<std::int64_t>(batches_.of(*plan_, epoch).size());
  }

  /// sum_i w(label_i) cross_entropy_i, where the classes are weighted.
  Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) override {
    const Batch& rows = batches_.of(*plan_, epoch)[static_cast<std::size_t>(batch)];
    const std::vector<std::int32_t> labels = pick(labels_, rows);
    const auto count = static_cast<std::int64_t>(rows.size());
    const Tensor all = logits(pick(examples_, rows), context);
    Tensor losses = cross_entropy(all, Tensor::from(labels, {count}, all.device()),
                                  settings_.get<double>("training.label_smoothing"));
    if (!weights_.empty()) {
      std::vector<float> weights;
      for (const std::int32_t label : labels) weights.push_back(weights_[static_cast<std::size_t>(label)]);
      losses = losses * Tensor::from(weights, {count}, all.device());
    }
    return {sum(losses), count};
  }

  Evaluation evaluate() override {
    if (valid_examples_.empty()) return {};
    const std::vector<ClassScores> scores = scores_of(valid_examples_);
    return {figures(quality_of(scores, valid_labels_, classes_.size()), scores, parts_.valid).metrics,
            settings_.get<std::string>("training.keep_best_by")};
  }

  std::vector<std::string> example_lines(std::size_t count) const override {
    const LabelledText& part = parts_.valid.size() > 0 ? parts_.valid : parts_.train;
    TextList lines;
    for (std::size_t i = 0; i < part.size(); ++i) lines.push_back(text_at(part, i));
    return short_lines(lines, count);
  }

  std::vector<Prediction> predict(std::span<const std::string> lines,
                                  const PredictOptions& options) override {
    const auto read = [&](const std::string& line) { return example_of_line(line); };
    const auto answer = [&](const std::vector<Example>& examples) {
      if (std::string cut = take_cut_message(); !cut.empty()) remark(std::move(cut));
      std::vector<Prediction> answers;
      for (const ClassScores& scores : scores_of(examples))
        answers.push_back(prediction_of(scores, classes_));
      return answers;
    };
    const auto show = [&](const Example& example, std::int64_t line, CaptureFile& file) {
      show_inside(example, line, file);
    };
    return answer_lines(lines, options, read, answer, show);
  }

  Measurement measure(std::string_view part) override {
    const LabelledText& text = part == "valid" ? parts_.valid : part == "test" ? parts_.test : parts_.train;
    check(text.size() > 0, "the ", part, " part of the run's data is empty: give --data");
    return measurement_of(text);
  }

  Measurement measure_files(std::span<const std::string> files) override {
    ReadReport report;
    const LabelledText text = read_file(files.front(), report);
    remark_on_reading(report);
    return measurement_of(text);
  }

 protected:
  // --- what a task says for itself
  virtual LabelledText read_file(const std::string& path, ReadReport& report) const = 0;
  virtual LabelledText made_by_rule() const = 0;
  /// The example of a line of input; throws an Error where it is none.
  virtual Example example_of_line(const std::string& line) = 0;
  virtual std::vector<Example> examples_of(const LabelledText& text) = 0;
  /// How many texts were cut since the last call; "" where none was.
  virtual std::string take_cut_message() = 0;
  /// The lengths that batches are put together by: of the examples, or of the two texts of each.
  virtual std::array<std::vector<std::int32_t>, 2> lengths(const std::vector<Example>& examples) const = 0;
  /// What the examples are, for people: "vocabulary 8000".
  virtual std::string description() const = 0;
  /// Class logits [B, classes].
  virtual Tensor logits(const std::vector<Example>& examples, Context& context) = 0;
  virtual ClassFigures figures(const ClassQuality& quality, const std::vector<ClassScores>& scores,
                               const LabelledText& text) const = 0;
  /// The tokens of an example, a row for each text that is read by itself; none for an image.
  virtual std::vector<Tokens> rows_of(const Example& example) const = 0;
  virtual const Tokenizer* tokenizer() const = 0;

  TextParts parts_;
  std::vector<std::string> classes_;

 private:
  /// The scores of each example, in their order; those of like length are read together.
  std::vector<ClassScores> scores_of(const std::vector<Example>& examples) {
    const NoGrad no_grad;
    std::vector<ClassScores> scores(examples.size());
    if (examples.empty()) return scores;
    const auto [first, second] = lengths(examples);
    const BatchPlan plan(first, second,
                         evaluation_batches(settings_.get<std::int64_t>("prediction.batch_size")));
    const std::vector<Batch> batches = plan.epoch(0);
    const auto found = deal_out_numbers<float>(ranks(), batches.size(), [&](std::size_t batch) {
      Context context = Context::inference();
      return log_softmax(logits(pick(examples, batches[batch]), context), -1).template to_vector<float>();
    });
    for (std::size_t batch = 0; batch < batches.size(); ++batch) {
      auto next = found[batch].begin();  // [B, classes]
      const auto classes = std::ssize(found[batch]) / std::ssize(batches[batch]);
      for (const std::int32_t row : batches[batch]) {
        scores[static_cast<std::size_t>(row)].assign(next, next + classes);
        next += classes;
      }
    }
    return scores;
  }

  Measurement measurement_of(const LabelledText& text) {
    const std::vector<std::int32_t> labels = classes_of(text, classes_);
    const std::vector<Example> examples = examples_of(text);
    const std::vector<ClassScores> scores = scores_of(examples);
    const ClassQuality quality = quality_of(scores, labels, classes_.size());
    return class_measurement(figures(quality, scores, text), quality, scores, labels, text, classes_);
  }

  /// One pass over an example in which the model shows its inside. What it reads side by side are examples of their own.
  void show_inside(const Example& example, std::int64_t line, CaptureFile& file) {
    Device device;
    const Capture capture = captured([&](Context& context) { device = logits({example}, context).device(); });
    const std::string name = "lines." + std::to_string(line);
    const std::vector<Tokens> rows = rows_of(example);
    if (rows.empty()) return file.add(name, capture);
    const Tensor ids = pad_tokens(rows, device).ids;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto at = static_cast<std::int64_t>(row), count = static_cast<std::int64_t>(rows.size());
      const std::string name_of_row = count == 1 ? name : name + (row == 0 ? "-first" : "-second");
      std::vector<std::string> texts = token_texts(*tokenizer(), rows[row]);
      texts.resize(static_cast<std::size_t>(ids.size(1)), "<pad>");
      file.add_tokens(name_of_row, "tokens", slice(ids, 0, at, at + 1), texts);
      Capture of_row;
      for (const Capture::Entry& entry : capture.entries) {
        const int axis = batch_axis(entry);
        const std::int64_t samples = entry.value.rank() > axis ? entry.value.size(axis) : 0;
        if (samples == count)
          of_row.entries.push_back({entry.layer, entry.name, slice(entry.value, axis, at, at + 1)});
        else if (samples == 1)  // the same for all
          of_row.entries.push_back(entry);
      }
      file.add(name_of_row, count == 1 ? capture : of_row);
    }
  }

  /// Where the samples are told apart: behind the rounds of Reformer's buckets and orders [R, B, H, N].
  static int batch_axis(const Capture::Entry& entry) {
    return entry.name == "buckets" || (entry.name == "order" && entry.value.rank() == 4) ? 1 : 0;
  }

  std::vector<Example> examples_, valid_examples_;
  std::vector<std::int32_t> labels_, valid_labels_;
  std::vector<float> weights_;  // of the classes; empty: all alike
  std::optional<BatchPlan> plan_;
  EpochBatches<BatchPlan> batches_;
};

}  // namespace heed
