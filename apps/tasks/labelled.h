#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "heed/apps/tasks/examples.h"
#include "heed/data/labelled_text.h"
#include "heed/data/text_features.h"
#include "heed/models/classifier.h"

// What tasks that tell classes apart have in common: their data, their loss, and how they are measured.

namespace heed {

// --- data

/// The files of "data", and how they are read.
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
  visit(data.format, "format", formats, data.formats_help + "; empty: by the name, where it tells");
  for_each_setting(visit, data.text);
  visit_header(visit, data.header);
  visit_delimiter(visit, data.delimiter);
  visit(data.missing, "missing", {"error", "drop"},
        "Of tables: a row without its label or its text (empty; of jsonl null) is an error, or left out, "
        "and said");
}

void visit_weight_column(auto&& visit, std::string& column) {
  visit(column, "weight_column",
        "Of tables: how much an example counts in training, a number from 0: the column's number or name; "
        "empty: all alike",
        {.kind = Setting::Kind::column});
}
void visit_text_columns(auto&& visit, std::vector<std::string>& columns) {
  visit(columns, "text_columns",
        "Of tables: the columns of the text, joined by a space, such as title,body; empty: found by the "
        "data, and "
        "said");
}

/// How the data are split where no files are named for the parts.
void visit_split(auto&& visit, SplitOptions& split, bool of_classes) {
  visit_valid_fraction(visit, split.valid_fraction);
  visit_test_fraction(visit, split.test_fraction);
  visit_split_seed(visit, split.seed);
  if (of_classes)
    visit(split.stratified, "stratified",
          "Whether every class is held out by the same share, and keeps at least one example for training");
  visit(split.folds, "folds", 0, 1000,
        "Cross-validation: so many runs, each tested on another part of data.file; 0: none");
  visit(split.fold, "fold", 0, 1000, "Which of these runs, from 1; 0: all, each in a folder of its own");
}
void for_each_setting(auto&& visit, SplitOptions& split) {
  visit_split(visit, split, /*of_classes=*/true);
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
enum class Labels { classes, sets, numbers };
/// The parts of the data: what by_rule() makes where the settings name no files, else what read(path,
/// settings) finds in these. Throws a SettingsError for classes that are none. Other files are read by the
/// columns of the training file: their names become settings where it has a header.
TextParts read_labelled_parts(
    Settings& settings, Labels labels, const std::function<LabelledText()>& by_rule,
    const std::function<LabelledText(const std::string& path, const Settings& layout)>& read);
/// Throws a SettingsError for labels that are none: more than 200, with fewer than three texts each on
/// average. It names the columns that there are; to be called before anything is built for so many classes.
void check_labels(const LabelledText& text, std::string_view origin);

// --- training

/// What there is to say before it: how many examples there are, called `unit`, and of which classes.
/// `description`: what they are, "vocabulary 8000".
/// `labels`: the same parts with a row for each label.
std::vector<std::string> remarks_on_labelled(const TextParts& parts, const TextParts& labels,
                                             const std::vector<std::string>& classes, const std::string& unit,
                                             const std::string& description);
/// The same when steps are fewer than the batches of an epoch; else "".
std::string remark_on_steps(const Settings& settings, std::int64_t batches);
/// The weights that the data give the examples, times what makes their mean 1; empty: all count alike. Throws
/// an Error where all are 0.
std::vector<float> example_weights(const LabelledText& text);
/// The same, and where the settings balance the classes times texts / (classes * texts of its class).
/// `labels`: the class of each example.
std::vector<float> example_weights(const Settings& settings, const LabelledText& text,
                                   const std::vector<std::int32_t>& labels, std::size_t classes);
/// The weights of a batch; empty: all count alike.
inline std::vector<float> batch_weights(const std::vector<float>& weights, const Batch& rows) {
  return weights.empty() ? weights : pick(weights, rows);
}
/// ClassLogits::loss with the weight of each example; empty: all count alike.
Loss class_loss(const ClassLogits& logits, const std::vector<std::int32_t>& labels,
                const std::vector<float>& weights, double label_smoothing);
/// The sparse vectors of a batch as a model reads them.
SparseBatch sparse_batch(const std::vector<TextFeatures>& features, Device device);
/// Those of inputs for a model with sparse features, features_of(input, count) of each; for others nothing.
template <class Input, class FeaturesOf>
SparseBatch sparse_batch_of(const std::vector<Input>& inputs, const SequenceEncoder& model,
                            const FeaturesOf& features_of) {
  const std::int64_t count = model.config().sparse_features;
  if (count == 0) return {};
  std::vector<TextFeatures> features;
  for (const Input& input : inputs) features.push_back(features_of(input, count));
  return sparse_batch(features, model.device());
}
/// The optional last column of labelled examples in memory.
inline constexpr ExampleColumn weight_of_example = {
    .name = "weight", .help = "How much it counts in training", .optional = true, .is_number = true};
// --- texts that an EncoderClassifier reads

/// A few thousand texts are soon learned by heart. What helps: whole words, those met once being <unk>;
/// embeddings that begin near 0, so that rare words stay there, and norms with an epsilon that leaves small
/// vectors small; heavy dropout of words; a local layer in place of positions; features of words and parts of
/// words beside the encoder, and most of the answer theirs; averaged weights. One evaluation, at the end: the
/// average there is better than what a few hundred held-out texts like best on the way.
inline constexpr const char* for_labelled_texts = R"({
  "tokenizer": {"kind": "auto", "vocabulary": 30000},
  "model": {"width": 64, "feed_forward": 128, "encoder_layers": 1, "dropout": 0.5, "word_dropout": 0.4,
    "positions": "none", "local_width": 3, "epsilon": 0.1, "embedding_deviation": 0.01, "sparse_features": 131072},
  "training": {"steps": 1000, "batch_tokens": 1024, "evaluate_every": 1000, "save_every": 500, "ema_decay": 0.99,
    "schedule": {"name": "cosine", "warmup_steps": 50, "learning_rate": 0.002}}})";

/// Few texts of few words overfit within a thousand steps.
inline constexpr PassLimit passes_of_texts = {40, 300};

/// Fine-tuning takes the optimizer and the few passes that suit BERT (Devlin et al. 2019, appendix A), at most
/// a thousand steps, and keeps the features of texts beside the encoder.
inline constexpr PassLimit passes_of_fine_tuning = {4, 100};
inline constexpr const char* for_fine_tuning = R"({
  "training": {"steps": 1000, "evaluate_every": 1000, "save_every": 200, "ema_decay": 0.98,
    "optimizer": {"name": "adamw", "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_steps": 100}}})";

/// A text with its tokens. The text must live as long.
struct TokenizedText {
  Tokens tokens;
  std::string_view text = {};
};
/// The logits of texts, with sparse features of theirs where the model has some.
ClassLogits logits_of_texts(EncoderClassifier& model, const std::vector<TokenizedText>& texts,
                            Context& context);

// --- several labels a text

/// The classes that a text has, each once.
using ClassSet = std::vector<std::int32_t>;
/// A row for each label of each text: what classes are found and counted in.
LabelledText one_label_each(const LabelledText& text, std::string_view separator);
/// The classes of each text. Throws an Error with the place of the first label that is none of `classes`.
std::vector<ClassSet> class_sets_of(const LabelledText& text, std::string_view separator,
                                    std::span<const std::string> classes);
/// ClassLogits::loss_of_each with the weight of each example; empty: all count alike.
Loss class_set_loss(const ClassLogits& logits, const std::vector<ClassSet>& labels,
                    const std::vector<float>& weights, double label_smoothing);

/// Lines of a report's examples.
std::vector<ExampleLine> labelled_lines(const LabelledText& text, std::size_t count);

// --- answers

/// The logarithm of the probability of each class.
using ClassScores = std::vector<float>;
/// Fits the shares of a classifier's parts to held-out samples, from the logits of each
/// (ClassLogits::side_by_side). Returns the scores that follow.
std::vector<ClassScores> fitted_scores(SparseLinear& sparse, const std::vector<std::vector<float>>& logits,
                                       const std::vector<std::int32_t>& labels);
/// The same where a text may have several classes: the logarithm of the probability of each by itself.
std::vector<ClassScores> fitted_scores(SparseLinear& sparse, const std::vector<std::vector<float>>& logits,
                                       const std::vector<ClassSet>& labels);
/// Of each input the classes whose probability is at least one half, with `separator` between them; the
/// probability that these and no others are right; and each class with its own.
std::vector<Prediction> class_set_predictions(const std::vector<ClassScores>& scores,
                                              const std::vector<std::string>& classes,
                                              std::string_view separator);
/// Of each input the best class with its probability, and all others behind it.
std::vector<Prediction> class_predictions(const std::vector<ClassScores>& scores,
                                          const std::vector<std::string>& classes);

/// How well classes are told apart.
struct ClassQuality {
  double accuracy = 0, loss = 0;
  /// The mean F1 of the classes that occur among the labels or the answers, as scikit-learn has it.
  double macro_f1 = 0;
  double micro_f1 = 0;  ///< of all decisions together; where each text has one class it is the accuracy
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
/// A label behind the classes that there are scores of is a wrong answer, and the loss leaves it out.
ClassQuality quality_of(const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                        std::size_t classes);
/// The same where a text may have several classes: the accuracy is the share of texts all of whose classes
/// are right, the loss the sum over a text's classes, and there is no confusion.
ClassQuality quality_of_sets(const std::vector<ClassScores>& scores, const std::vector<ClassSet>& labels,
                             std::size_t classes);
/// The classes, and behind them in byte order the labels of texts to measure on that are none of them; not
/// where no label is one of the classes, since these are hardly the labels (classes_of() then names the
/// first).
std::vector<std::string> with_other_labels(const std::vector<std::string>& classes, const LabelledText& text);
/// The rows that an evaluation of at most `most` of them reads, evenly spread, whole groups (groups_of()) of
/// them; at least one group; 0: all.
std::vector<std::size_t> sampled_rows(const LabelledText& text, std::int64_t most);
/// "5 of 893 texts have labels that training lacks, ...", or "" when none has.
std::string remark_on_other_labels(const std::vector<std::string>& classes, const LabelledText& text,
                                   const std::string& unit);
/// How often texts of a class were taken for another.
struct Confusion {
  std::int64_t count = 0;
  std::size_t expected = 0, predicted = 0;
};
/// Those that occur in a matrix [expected][predicted], the most frequent first.
std::vector<Confusion> confusions_in(const std::vector<std::vector<std::int64_t>>& matrix);
/// What is said of classes that were told apart: the metrics, and how many groups of what kind were ranked.
struct ClassFigures {
  std::vector<Metric> metrics;
  std::map<std::string, std::int64_t> groups = {};
};
/// What `evaluate` says: the metrics, and as JSON behind them "texts", "classes" with precision, recall and
/// F1 of each, "confusion", the rows expected and the columns predicted, in the order of the classes, and
/// "groups"; and the wrong answers.
Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<std::int32_t>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes);
Measurement class_measurement(ClassFigures figures, const ClassQuality& quality,
                              const std::vector<ClassScores>& scores, const std::vector<ClassSet>& labels,
                              const LabelledText& text, const std::vector<std::string>& classes,
                              std::string_view separator);

}  // namespace heed
