#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heed/apps/tasks/example_learner.h"
#include "heed/autograd/ops.h"
#include "heed/data/labelled_text.h"

// What tasks that tell classes apart have in common: their data, how they are measured, and their learner, a
// thin layer on the frame of all tasks (apps/tasks/example_learner.h).

namespace heed {

// --- data

/// The files of "data", and how they are read.
struct LabelledFiles {
  DataFiles files = {.what = "Labelled texts", .form = ": a file (plain or gzip) or a folder"};
  std::string format = {};
  TextOptions text = {};
  Header header = Header::detected;
  std::string delimiter = {};
  std::vector<std::string> formats = {};  ///< the choices
  std::string formats_help = {};
};

void for_each_setting(auto&& visit, LabelledFiles& data) {
  for_each_setting(visit, data.files);
  std::vector<std::string> formats = data.formats;
  formats.insert(formats.begin(), "");
  visit(data.format, "format", formats, data.formats_help + "; empty: by the name, where it tells");
  for_each_setting(visit, data.text);
  visit_header(visit, data.header);
  visit_delimiter(visit, data.delimiter);
}

/// How the data are split where no files are named for the parts.
void for_each_setting(auto&& visit, SplitOptions& split) {
  visit_valid_fraction(visit, split.valid_fraction);
  visit_test_fraction(visit, split.test_fraction);
  visit_split_seed(visit, split.seed);
  visit(split.stratified, "stratified", "Whether every class is held out by the same share");
  visit(split.folds, "folds", 0, 1000,
        "Cross-validation: so many runs, each tested on another part of data.file; 0: none");
  visit(split.fold, "fold", 0, 1000, "Which of these runs, from 1; 0: all, each in a folder of its own");
}

struct ClassSettings {
  enum class Weights { equal, balanced } weights = Weights::equal;
};
void for_each_setting(auto&& visit, ClassSettings& classes) {
  visit(classes.weights, "class_weights", {"equal", "balanced"},
        "Whether the examples of a rare class count more, so that all classes weigh the same");
}
/// "training.class_weights" and "prediction.batch_size".
void declare_classes(Settings& settings);
/// True when the settings name data; throws a SettingsError when they name validation or test data alone, or
/// folds that make no sense.
bool names_labelled_data(const Settings& settings);
/// The options of the files, but for their columns. Throws a SettingsError when neither the settings nor the
/// name of `path` say how it is laid out; `help` ends the message.
LabelledOptions labelled_options(const Settings& settings, const std::string& path, std::string_view help);
/// The classes as a file of a run, and back. Throws an Error for a file that is damaged.
std::string classes_to_json(const std::vector<std::string>& classes);
std::vector<std::string> classes_from_json(const std::string& text);
/// Other files are read by the columns of the training file: keeps their names where it has a header.
void keep_columns(Settings& settings, const LabelledText& train);
/// What there is to say about the classes of the training texts: their counts, and which are rare.
std::vector<std::string> remarks_on_classes(const LabelledText& train,
                                            const std::vector<std::string>& classes);
/// A text as a line of input: of a pair both, with a tab between.
std::string text_at(const LabelledText& text, std::size_t index);
/// Throws a SettingsError for labels that are none: more than 200, with fewer than three texts each on
/// average. It names the columns that there are; to be called before anything is built for so many classes.
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
/// How often texts of a class were taken for another.
struct Confusion {
  std::int64_t count = 0;
  std::size_t expected = 0, predicted = 0;
};
/// Those that occur in a matrix [expected][predicted], the most frequent first.
std::vector<Confusion> confusions_in(const std::vector<std::vector<std::int64_t>>& matrix);
/// What is said of classes that were told apart: the metrics, and members for the JSON object, "" or
/// `"name":value,...`.
struct ClassFigures {
  std::vector<Metric> metrics;
  std::string members = {};
};
/// What `evaluate` says: the metrics and members, and as JSON behind them "texts", "classes" with precision,
/// recall and F1 of each, and "confusion", the rows expected and the columns predicted, in the order of the
/// classes; and the wrong answers.
Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes);

// --- the learner

/// Learns to tell classes of examples. An Input is what the model reads of one text, pair or image.
template <class Input>
class LabelledLearner : public ExampleLearner<LabelledText, Input, std::int32_t> {
  using Base = ExampleLearner<LabelledText, Input, std::int32_t>;

 public:
  using Base::Base;

  void learn_vocabulary() override {
    Base::learn_vocabulary();
    classes_ = class_names(parts_.train);
  }
  std::map<std::string, std::string> files() const override {
    std::map<std::string, std::string> files = Base::files();
    files["classes.json"] = classes_to_json(classes_);
    return files;
  }
  void open_files(const std::function<std::string(std::string_view)>& read) override {
    Base::open_files(read);
    classes_ = classes_from_json(read("classes.json"));
  }

  void prepare_training() override {
    this->remark(concat_text(parts_.train.size(), ' ', this->unit(), " of ", classes_.size(),
                             " classes to learn from, ", parts_.valid.size(), " to measure with, ",
                             parts_.test.size(), " kept for a test; ", description()));
    for (std::string& text : remarks_on_classes(parts_.train, classes_)) this->remark(std::move(text));
    Base::prepare_training();
    const Settings& settings = this->settings();
    if (settings.read<ClassSettings>("training").weights == ClassSettings::Weights::balanced)
      weights_ = balanced_weights(this->train_.targets, classes_.size());
    const auto steps = settings.get<std::int64_t>("training.steps");
    if (settings.get<std::int64_t>("training.epochs") == 0 && steps < this->batches(0))
      this->remark(concat_text("training.steps = ", steps, " end before all ", this->batches(0),
                               " batches were read once: this much data deserves more steps"));
  }

  std::vector<std::string> known_classes() const override { return classes_; }

  std::vector<std::string> example_lines(std::size_t count) const override {
    const LabelledText& data = this->shown_data();
    TextList lines;
    for (std::size_t i = 0; i < data.size(); ++i) lines.push_back(text_at(data, i));
    return short_lines(lines, count);
  }

 protected:
  // --- what a task says for itself
  virtual LabelledText read_file(const std::string& path, ReadReport& report) const = 0;
  virtual LabelledText made_by_rule() const = 0;
  virtual std::vector<Input> inputs_of(const LabelledText& text) = 0;
  /// What the examples are, for people: "vocabulary 8000".
  virtual std::string description() const { return concat_text("vocabulary ", this->vocabulary_size()); }
  /// Class logits [B, classes].
  virtual Tensor logits(const std::vector<Input>& inputs, Context& context) = 0;
  virtual ClassFigures figures(const ClassQuality& quality, const std::vector<ClassScores>& scores,
                               const LabelledText& text) const = 0;

  TextParts read_parts(ReadReport& report) override {
    auto split = settings_.template read<SplitOptions>("data");
    const auto files = settings_.template read<DataFiles>("data");
    if (!names_labelled_data(settings_)) return split_text(made_by_rule(), split);
    return parts_of_files(
        files, split.valid_fraction, split.test_fraction,
        [&](const std::string& path) {
          LabelledText text = read_file(path, report);
          if (path == files.file) {
            check_labels(text, path);
            keep_columns(settings_, text);
          }
          return text;
        },
        [&](const LabelledText& all, double valid_fraction, double test_fraction) {
          split.valid_fraction = valid_fraction, split.test_fraction = test_fraction;
          return split_text(all, split);
        });
  }
  LabelledText read(std::span<const std::string> files, ReadReport& report) override {
    return read_file(files.front(), report);
  }
  std::string digest(const LabelledText& text) const override { return digest_of(text); }
  TextSource texts_of(const LabelledText& text) const override { return all_texts(text); }
  typename Base::Examples examples_of(const LabelledText& text) override {
    std::vector<std::int32_t> labels = classes_of(text, classes_);
    return {inputs_of(text), std::move(labels)};
  }

  /// sum_i w(label_i) cross_entropy_i, where the classes are weighted.
  Loss loss_of(const std::vector<Input>& inputs, const std::vector<std::int32_t>& labels,
               Context& context) override {
    const auto count = static_cast<std::int64_t>(labels.size());
    const Tensor all = logits(inputs, context);
    Tensor losses = cross_entropy(all, Tensor::from(labels, {count}, all.device()), this->label_smoothing_);
    if (!weights_.empty()) losses = losses * Tensor::from(pick(weights_, labels), {count}, all.device());
    return {sum(losses), count};
  }

  Tensor raw_outputs(const std::vector<Input>& inputs, Context& context) override {
    return logits(inputs, context);
  }
  /// ClassScores of each input.
  Tensor outputs(const std::vector<Input>& inputs, Context& context) override {
    return log_softmax(logits(inputs, context), -1);
  }
  Prediction prediction_of(const Input&, const ClassScores& scores) const override {
    return heed::prediction_of(scores, classes_);
  }
  Measurement measured(const typename Base::Examples& examples, const LabelledText& text) override {
    const std::vector<ClassScores> scores = this->outputs_of(examples.inputs);
    const ClassQuality quality = quality_of(scores, examples.targets, classes_.size());
    return class_measurement(figures(quality, scores, text), quality, scores, examples.targets, text,
                             classes_);
  }

  using Base::parts_;
  using Base::settings_;
  std::vector<std::string> classes_;

 private:
  std::vector<float> weights_;  // of the classes; empty: all alike
};

}  // namespace heed
