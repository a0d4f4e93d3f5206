#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/text_features.h"
#include "heed/apps/tasks/examples.h"
#include "heed/models/classifier.h"

// Data, loss and evaluation shared by the tasks that classify or rate texts.

namespace heed {

// --- data

/// The data files of a task with labels, and how they are read.
struct LabelledFiles {
  DataFiles files = {.what = "Labelled texts", .form = ": a file (plain or gzip) or a folder"};
  std::string format = {};
  TextOptions text = {};
  Header header = Header::detected;
  std::string delimiter = {};
  enum class Missing { error, drop } missing = Missing::error;
  std::vector<std::string> formats = {};  ///< the choices
  std::string formats_help = {};
};

void for_each_setting(auto&& visit, LabelledFiles& data) {
  for_each_setting(visit, data.files);
  std::vector<std::string> formats = data.formats;
  formats.insert(formats.begin(), "");
  visit(data.format, "format", formats, data.formats_help + "; empty: from the name, if it implies one");
  for_each_setting(visit, data.text);
  visit_header(visit, data.header);
  visit_delimiter(visit, data.delimiter);
  visit(data.missing, "missing", {"error", "drop"},
        "Tables: whether a row without a label or text (empty; in jsonl, null) is an error, or is dropped "
        "and reported");
}

void visit_weight_column(auto&& visit, std::string& column) {
  visit(column, "weight_column",
        "Tables: column with the weight of each example in training, a number from 0 up; column number or "
        "name; empty: equal weights",
        {.kind = Setting::Kind::column});
}
void visit_text_columns(auto&& visit, std::vector<std::string>& columns) {
  visit(columns, "text_columns",
        "Tables: columns of the text, joined by a space, such as title,body; empty: detected and reported");
}

/// Settings for splitting the data when validation or test files are not named.
void visit_split(auto&& visit, SplitOptions& split, bool of_classes) {
  visit_valid_fraction(visit, split.valid_fraction);
  visit_test_fraction(visit, split.test_fraction);
  visit_split_seed(visit, split.seed);
  if (of_classes)
    visit(split.stratified, "stratified",
          "Hold out the same share of every class, and keep at least one example of each for training");
  visit(split.folds, "folds", 0, 1000,
        "Number of cross-validation runs, each tested on another part of data.file; 0: none");
  visit(split.fold, "fold", 0, 1000,
        "The cross-validation run to train, from 1; 0: all, each in a folder of its own");
}
void for_each_setting(auto&& visit, SplitOptions& split) {
  visit_split(visit, split, /*of_classes=*/true);
}

struct ClassSettings {
  enum class Weights { equal, balanced } weights = Weights::equal;
};
void for_each_setting(auto&& visit, ClassSettings& classes) {
  visit(classes.weights, "class_weights", {"equal", "balanced"},
        "balanced: examples of rare classes count more, so that all classes have the same total weight");
}
/// The type of labels in Python. Elsewhere they are text.
enum class LabelType { unknown, text, integer, number, boolean };
void visit_label_type(auto&& visit, LabelType& type) {
  visit(
      type, "label_type", {"", "text", "integer", "number", "boolean"},
      "What labels are in Python, which sets it from the examples; classes of text are in byte order, others "
      "in numeric order; empty: text, integers in numeric order",
      {.changes = Changes::never});
}
/// Declares "training.class_weights" and "prediction.batch_size".
void declare_classes(Settings& settings);
/// Whether the settings name training data. Throws a SettingsError if they name only validation or
/// test data, or invalid folds.
bool names_labelled_data(const Settings& settings);
/// Returns the reader options of the files, without their columns. Throws a SettingsError if
/// neither the settings nor the name of `path` determine the format; `help` ends the message.
LabelledOptions labelled_options(const Settings& settings, const std::string& path, std::string_view help);
/// Returns the classes of a new run: class_names() or, if training starts from a run of the same task
/// and classes, these in its order. Throws a SettingsError for a label that is not of
/// "data.label_type".
std::vector<std::string> learned_classes(std::string_view task, const Settings& settings,
                                         const LabelledText& labels);
/// Converts class names to the text of a run's file, and back. Throws an Error for a damaged file.
std::string classes_to_json(const std::vector<std::string>& classes);
std::vector<std::string> classes_from_json(const std::string& text);
enum class Labels { classes, sets, numbers };
/// Reads the parts of the data with read(path, settings), or generates them with by_rule() if the
/// settings name no files. Throws a SettingsError for labels that cannot be classes. All files are
/// read with the columns found in the training file; if it has a header, their names are stored in
/// the settings.
TextParts read_labelled_parts(
    Settings& settings, Labels labels, const std::function<LabelledText()>& by_rule,
    const std::function<LabelledText(const std::string& path, const Settings& layout)>& read);
/// Throws a SettingsError if the label column cannot hold classes: more than 200 different labels
/// with fewer than three texts each on average. The message lists the columns. Call it before
/// building a model for so many classes.
void check_labels(const LabelledText& text, std::string_view origin);

// --- training

/// Returns remarks to print before training: the number of examples, in `unit`s, and their classes.
/// `description` describes the model's input: "vocabulary 8000". `labels` holds the same parts with
/// a row for each label.
std::vector<std::string> labelled_data_remarks(const TextParts& parts, const TextParts& labels,
                                               const std::vector<std::string>& classes,
                                               const std::string& unit, const std::string& description);
/// Sets training.batch_tokens, unless it is given, so that a batch has about a text of each class:
/// the mean of the lengths times the classes, from the default to 4,096. Returns a remark, or "".
std::string fit_batches(Settings& settings, std::span<const std::int32_t> lengths, std::size_t classes);
/// Returns a remark if there are fewer steps than batches in an epoch, otherwise "".
std::string steps_remark(const Settings& settings, std::int64_t batches);
/// Returns the weights of the examples in the data, scaled to mean 1; empty if all are equal.
/// Throws an Error if all are 0.
std::vector<float> example_weights(const LabelledText& text);
/// Returns the weights of the examples. If the settings balance the classes, each weight is
/// multiplied by texts / (classes * texts of its class). `labels`: the class of each example.
std::vector<float> example_weights(const Settings& settings, const LabelledText& text,
                                   const std::vector<std::int32_t>& labels, std::size_t classes);
/// Returns the weights of a batch; empty if all are equal.
inline std::vector<float> batch_weights(const std::vector<float>& weights, const Batch& rows) {
  return weights.empty() ? weights : pick(weights, rows);
}
/// Returns ClassLogits::loss with the weight of each example; empty: all are equal.
Loss class_loss(const ClassLogits& logits, const std::vector<std::int32_t>& labels,
                const std::vector<float>& weights, double label_smoothing);
/// Returns the sparse vectors of a batch in the form that a model reads.
SparseBatch sparse_batch(const std::vector<TextFeatures>& features, Device device);
/// Returns the sparse batch of inputs, with make_features(input, count) for each; empty for a model
/// without sparse features.
template <class Input, class FeaturesOf>
SparseBatch make_sparse_batch(const std::vector<Input>& inputs, const SequenceEncoder& model,
                              const FeaturesOf& make_features) {
  const std::int64_t count = model.config().sparse_features;
  if (count == 0) return {};
  std::vector<TextFeatures> features;
  for (const Input& input : inputs) features.push_back(make_features(input, count));
  return sparse_batch(features, model.device());
}
/// The optional last column of labelled examples in memory.
inline constexpr ExampleColumn weight_of_example = {
    .name = "weight", .help = "How much it counts in training", .optional = true, .is_number = true};

// --- texts that an EncoderClassifier reads

/// Defaults for a few thousand labelled texts, which a model soon memorises. They use whole words,
/// with words seen once as `<unk>`; embeddings that start near 0, so that rare words stay there;
/// norms with an epsilon that keeps small vectors small; heavy word dropout; a local layer instead
/// of positions; sparse features of words and word parts, which contribute most of the answer; and
/// averaged weights. There is one evaluation, at the end: the final average is better than the
/// weights that a few hundred held-out texts would select earlier.
inline constexpr const char* for_labelled_texts = R"({
  "tokenizer": {"kind": "auto", "vocabulary": 30000},
  "model": {"width": 64, "feed_forward": 128, "encoder_layers": 1, "dropout": 0.5, "word_dropout": 0.4,
    "positions": "none", "local_width": 3, "epsilon": 0.1, "embedding_deviation": 0.01, "sparse_features": 131072},
  "training": {"steps": 1000, "batch_tokens": 1024, "evaluate_every": 1000, "save_every": 500, "ema_decay": 0.99,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.002}}})";

/// The limit for training on texts. A few short texts overfit within a thousand steps, which are
/// too few to read many texts even once.
inline constexpr EpochLimit text_epoch_limit = {40, 300, 10'000};

/// The pass limit and defaults for fine-tuning: the optimizer and few epochs that suit BERT (Devlin
/// et al. 2019, appendix A), at most a thousand steps. Sparse features stay enabled.
inline constexpr const char* for_fine_tuning = R"({
  "training": {"steps": 1000, "evaluate_every": 1000, "save_every": 200, "ema_decay": 0.98,
    "optimizer": {"name": "adamw", "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 100}}})";

/// A text with its tokens. The text must outlive it.
struct TokenizedText {
  Tokens tokens;
  std::string_view text = {};
};
/// Returns the logits of texts, using their sparse features if the model has any.
ClassLogits logits_of_texts(EncoderClassifier& model, const std::vector<TokenizedText>& texts,
                            Context& context);

// --- several labels a text

/// The classes that a text has, each once.
using ClassSet = std::vector<std::int32_t>;
/// Returns a row for each label of each text, for finding and counting the classes.
LabelledText expand_labels(const LabelledText& text, std::string_view separator);
/// Returns the classes of each text. Throws an Error with the place of the first label that is not
/// in `classes`.
std::vector<ClassSet> parse_class_sets(const LabelledText& text, std::string_view separator,
                                       std::span<const std::string> classes);
/// Returns ClassLogits::multilabel_loss with the weight of each example; empty: all are equal.
Loss multi_label_loss(const ClassLogits& logits, const std::vector<ClassSet>& labels,
                      const std::vector<float>& weights, double label_smoothing);

/// Returns example lines for a report.
std::vector<std::string> labelled_lines(const LabelledText& text, std::size_t count);

// --- answers

/// The logarithm of the probability of each class.
using ClassScores = std::vector<float>;
/// Fits the weights that combine a classifier's dense and sparse parts to held-out samples, given
/// the logits of each (ClassLogits::side_by_side). Returns the resulting scores.
std::vector<ClassScores> fitted_scores(SparseLinear& sparse, const std::vector<std::vector<float>>& logits,
                                       const std::vector<std::int32_t>& labels);
/// Fits the weights for texts with several classes. The scores are the log-probability of each
/// class by itself.
std::vector<ClassScores> fitted_scores(SparseLinear& sparse, const std::vector<std::vector<float>>& logits,
                                       const std::vector<ClassSet>& labels);
/// Returns for each input the classes whose probability is at least one half, joined by
/// `separator`, with the probability that exactly these are right. The alternatives hold every
/// class with its own probability.
std::vector<Prediction> multi_label_predictions(const std::vector<ClassScores>& scores,
                                                const std::vector<std::string>& classes,
                                                std::string_view separator);
/// Returns for each input the best class with its probability, and all classes as alternatives.
std::vector<Prediction> class_predictions(const std::vector<ClassScores>& scores,
                                          const std::vector<std::string>& classes);

/// Quality of a classifier's predictions.
struct ClassQuality {
  double accuracy = 0, loss = 0;
  /// The mean F1 of the classes that occur among the labels or the predictions, as in scikit-learn.
  double macro_f1 = 0;
  double micro_f1 = 0;  ///< over all decisions; equals the accuracy if each text has one class
  struct One {
    std::int64_t texts = 0, predicted = 0, right = 0;
    bool occurs() const { return texts + predicted > 0; }
    double precision() const;
    double recall() const;
    double f1() const;
  };
  std::vector<One> classes;
  /// [expected][predicted]; empty for more than 200 classes.
  std::vector<std::vector<std::int64_t>> confusion;
};
/// Scores predictions against labels. A label beyond the scored classes counts as a wrong answer
/// and is left out of the loss.
ClassQuality measure_quality(const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                             std::size_t classes);
/// Scores predictions for texts with several classes. The accuracy is the share of texts whose
/// classes are all right, the loss is summed over a text's classes, and there is no confusion
/// matrix.
ClassQuality multi_label_quality(const std::vector<ClassScores>& scores, const std::vector<ClassSet>& labels,
                                 std::size_t classes);
/// Returns the classes, followed in byte order by labels in the evaluation data that training did
/// not have. If no label is one of the classes, none is added, because the column is probably
/// wrong; classes_of() then names the first label.
std::vector<std::string> with_other_labels(const std::vector<std::string>& classes, const LabelledText& text);
/// Returns the rows for an evaluation of at most `most` rows (0: all): evenly spread, whole groups
/// (group_by_first_text()), and at least one group.
std::vector<std::size_t> sampled_rows(const LabelledText& text, std::int64_t most);
/// Returns "5 of 893 texts have labels that training lacks, ...", or "" if there are none.
std::string other_labels_remark(const std::vector<std::string>& classes, const LabelledText& text,
                                const std::string& unit);
/// The number of texts of one class that were predicted as another.
struct Confusion {
  std::int64_t count = 0;
  std::size_t expected = 0, predicted = 0;
};
/// Returns the confusions in a matrix [expected][predicted], the most frequent first.
std::vector<Confusion> confusions_in(const std::vector<std::vector<std::int64_t>>& matrix);
/// The figures of a classifier: its metrics, and the number of ranked groups of each kind.
struct ClassFigures {
  std::vector<Metric> metrics;
  std::map<std::string, std::int64_t> groups = {};
};
/// Returns the result of `evaluate`: the metrics and the wrong answers. The JSON adds "texts",
/// "classes" with precision, recall and F1 of each, "confusion" (a row for each expected class, a
/// column for each predicted one, in class order) and "groups".
Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes);
Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<ClassSet>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes,
                              std::string_view separator);

}  // namespace heed
