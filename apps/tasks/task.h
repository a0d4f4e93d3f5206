#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/data/text_file.h"
#include "heed/apps/report/capture.h"
#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/settings.h"
#include "heed/base/error.h"
#include "heed/base/fork.h"
#include "heed/core/device.h"
#include "heed/models/decoding.h"
#include "heed/text/tokenizer.h"
#include "heed/training/progress.h"
#include "heed/training/trainer.h"

namespace heed {

// --- what a task returns: predictions, generated texts, measurements

/// The prediction for one line.
struct Prediction {
  std::string text;        ///< the label, the translation, the continuation
  double probability = 0;  ///< of the answer; for a sequence, the product over its tokens
  struct Alternative {
    std::string text;
    double probability = 0;
    std::optional<double> score = {};  ///< the model's score, if it says more than the probability
  };
  std::vector<Alternative> alternatives = {};  ///< all classes, or the best sequences: best first
  std::string error = {};                      ///< why the line has no answer; "": it has one
  std::vector<float> vector = {};              ///< the answer of a task that predicts vectors
  /// A word or a span of words, with its label and its place in the text.
  struct Span {
    std::string text, label;
    std::size_t begin = 0, end = 0;  ///< in characters
    double probability = 0;          ///< that these words have these labels
  };
  std::vector<Span> words = {}, spans = {};  ///< the answer of a task that labels words
};
/// Returns {"spans": [{"text", "label", "start", "end", "probability"}], "words": the same of each word}.
std::string spans_to_json(const Prediction& answer);

struct PredictOptions {
  /// Receives attention weights and other captured tensors for each line that is not blank; null:
  /// no capture.
  CaptureFile* capture = nullptr;
  /// The number of the first line, in the capture ("lines.<number>") and errors.
  std::int64_t first_line = 0;
  /// If false, random draws for a line depend on the seed and the line's number. If true, every
  /// line counts as the first, so that its answer does not depend on its position.
  bool each_first = false;
  /// For a single line: receives its answer as it is generated (Run::stream()).
  TextPieces* pieces = nullptr;
  /// For Run::predict(): if true, a line that cannot be answered gets a Prediction::error; if
  /// false, it throws.
  bool return_errors = false;

  std::string name_of(std::size_t line) const {
    return concat_text("lines.", first_line + static_cast<std::int64_t>(line));
  }
};

/// Options of Run::generate(). Options that are not set default to the settings of the run.
struct TextGenerationOptions {
  std::optional<std::int64_t> max_tokens = {};  ///< the most new tokens, from 1
  // As in SamplingOptions. If any of these is set, or samples > 1, texts are sampled instead of
  // searched for.
  std::optional<double> temperature = {};
  std::optional<std::int64_t> top_k = {};
  std::optional<double> top_p = {};
  std::optional<double> min_p = {};
  std::optional<double> repetition_penalty = {};
  std::optional<std::uint64_t> seed = {};
  /// Texts that end a generated text, before which it is cut.
  std::optional<std::vector<std::string>> stop = {};
  std::int64_t samples = 1;  ///< number of texts, 1 to 1,024
  bool marks = true;         ///< false: a language model reads the prompt without the mark that begins texts
  TextPieces* pieces = nullptr;  ///< receives the first text as it is generated (Run::stream())

  bool draws() const {
    return samples > 1 || temperature || top_k || top_p || min_p || repetition_penalty || seed;
  }
  bool has_any() const { return draws() || max_tokens || stop || !marks; }
  void apply_to(SamplingOptions& sampling, std::uint64_t& own_seed) const {
    sampling = {temperature.value_or(sampling.temperature), top_k.value_or(sampling.top_k),
                top_p.value_or(sampling.top_p), min_p.value_or(sampling.min_p),
                repetition_penalty.value_or(sampling.repetition_penalty)};
    own_seed = seed.value_or(own_seed);
  }
};

/// A wrong prediction.
struct Mistake {
  std::string place, text, expected, predicted;
  double probability = 0;  ///< of the predicted answer
};

/// The contribution of each example, or group of examples, to a metric. Comparisons of two models
/// on the same examples need it.
struct ExampleStatistics {
  std::string metric;        ///< its name; "": there are no rows
  std::string combine = {};  ///< computes it from column sums: "mean" (first / second) or "bleu"
  std::vector<std::vector<double>> rows = {};
};

/// The result of an evaluation.
struct Measurement {
  std::vector<Metric> metrics;
  std::string json;                    ///< one object: the metrics by name, and more figures
  std::vector<Mistake> mistakes = {};  ///< for tasks with labels; the most confident first
  std::int64_t count = 0;              ///< of examples
  ExampleStatistics examples = {};     ///< for a metric that is computed from single examples
};

// --- the list of tasks

class Task;

/// An entry of the list of tasks.
struct TaskEntry {
  std::string_view name;     ///< of its program, and in a run's files: "classify"
  std::string_view summary;  ///< one line
  Stacks stacks;
  /// The metrics of the task. By default the first one selects the best weights.
  std::span<const MetricKind> metrics;
  /// Returns all settings with their defaults, which differ between the user's data and the
  /// built-in data.
  Settings (*settings)(bool own_data);
  /// Whether the settings name data. Throws a SettingsError if they name only part of it.
  bool (*names_data)(const Settings& settings);
  /// The tables of examples that it accepts from memory; empty: it reads only files.
  std::vector<ExampleTable> examples = {};
  /// Defaults, as JSON, for training that starts from trained weights (training.from). Their
  /// learning rate is chosen from the width. Empty: the usual defaults.
  std::string_view fine_tuning = {};

  // --- filled in by make_task_entry()

  std::unique_ptr<Task> (*make_task)(const TaskEntry& entry, Settings settings) = nullptr;
  /// Throws a SettingsError for settings of training that contradict each other; null: none do.
  void (*check_training)(const Settings& settings) = nullptr;
  /// Reads a table of inputs for predict(); `take` receives the line of each row. Null: the task
  /// reads no tables.
  void (*read_rows)(const Settings& settings, const std::string& file, const TakeText& take,
                    ReadReport& report) = nullptr;

  std::unique_ptr<Task> make(Settings chosen) const { return make_task(*this, std::move(chosen)); }
};

/// Returns the kind of a task whose task has type L. L may have static functions
/// check_training() and read_rows().
template <class L>
TaskEntry make_task_entry(TaskEntry entry) {
  entry.make_task = [](const TaskEntry& own, Settings settings) -> std::unique_ptr<Task> {
    return std::make_unique<L>(own, std::move(settings));
  };
  if constexpr (requires { L::check_training; }) entry.check_training = L::check_training;
  if constexpr (requires { L::read_rows; }) entry.read_rows = L::read_rows;
  return entry;
}

/// Returns all tasks, in a fixed order. To add one, write its file and add it to the list in
/// task.cpp.
std::span<const TaskEntry* const> task_table();
/// Returns the task with this name. Throws an Error with the nearest name if there is none.
const TaskEntry& task_entry(std::string_view name);

/// How the data set the steps: at most this many passes, but at least this many steps; and at least
/// one pass, if that takes no more than `most_steps`, else that many. 0: not more than by default.
struct EpochLimit {
  std::int64_t passes, least_steps, most_steps = 0;
};
/// The limit for trained weights, whose few epochs suit BERT (Devlin et al. 2019, appendix A).
inline constexpr EpochLimit fine_tuning_epoch_limit = {4, 100};

/// The data of an evaluation: a part of the run's data, or other files.
struct MeasureSource {
  std::string_view part;               ///< "valid", "test" or "train"; "": `files`
  std::span<const std::string> files;  ///< as many as the task's data settings name
  const Settings& layout;              ///< settings that describe the layout of `files`
};

/// Returns metrics from their kinds and values, in the same order.
std::vector<Metric> metrics_of(std::span<const MetricKind> kinds, std::span<const double> values);

/// Names and contents of a run's files; and a function that reads one, which throws an Error if it
/// is missing.
using NamedFiles = std::map<std::string, std::string>;
using ReadFile = std::function<std::string(std::string_view name)>;

/// A task: its settings, data, vocabulary and model. It trains (as a Objective of the Trainer),
/// evaluates and predicts. train() (train.h) and Run (run.h) call its functions in this order:
///
///   to train     check_settings, read_data, learn_vocabulary (or open_files), build,
///                prepare_training
///   to predict   open_files, build, then predict and measure
///
/// To implement a task, derive from Task, read the settings in the constructor and implement the
/// virtual functions, with loss() and evaluate() of Objective. What only some tasks can do is an
/// interface of its own (HasOutputs, GeneratesText) or a function in TaskEntry.
class Task : public Objective {
 public:
  /// Throws a SettingsError for settings of its use that contradict each other. Those of training
  /// are for TaskEntry::check_training(): they must not keep a model from being opened. Reads,
  /// allocates and writes nothing.
  Task(const TaskEntry& entry, Settings settings)
      : settings_(std::move(settings)), label_smoothing_(training().label_smoothing), entry_(entry) {}

  const TaskEntry& entry() const { return entry_; }
  const Settings& settings() const { return settings_; }
  Module& model() override { return *model_; }
  /// The unit of its examples: "texts", "pairs".
  std::string unit() const override { return unit_; }
  /// The names of its classes, in the order of the outputs; empty if it has none.
  const std::vector<std::string>& known_classes() const { return classes_; }

  // --- life cycle

  /// Sets the settings that a run was trained with, which its model keeps when the run is used with
  /// other settings. Call it before build().
  void set_training_settings(Settings settings) { trained_ = std::move(settings); }
  /// On resume, restores the choices that training made for settings left open
  /// (tokenizer.kind=auto). `before`: the recorded settings of the run.
  void restore_choices(const Settings& before);
  /// To train: throws a SettingsError if only part of the data is named, if settings of training
  /// contradict each other, if the model is impossible, or if training it needs more memory than
  /// there is. Reads, allocates and writes nothing.
  void check_settings();
  /// Reads the data that the settings name, or generates the built-in data.
  void read_data() { digests_ = read_parts(); }
  /// The digest of each non-empty part of the data: "train", "valid", "test".
  const std::map<std::string, std::string>& data_digests() const { return digests_; }
  /// Learns the tokenizer and the labels from the training part.
  void learn_vocabulary();
  /// The tokenizer and labels as files of the run; open_files() loads them.
  const NamedFiles& files() const { return files_; }
  void open_files(const ReadFile& read);
  /// Throws the errors of build(), but allocates nothing.
  void check_build();
  /// Builds the model for the vocabulary. Throws a SettingsError for an impossible model, and if it,
  /// or after check_settings() its training, needs more memory than there is.
  void build(Device device);
  /// Converts the data to batches.
  virtual void prepare_training() = 0;
  /// Computes the weights that are solved for instead of trained, after prepare_training(), unless
  /// training resumes from a checkpoint.
  virtual void solve() {}
  /// The number of batches in the plan; tasks with another entry of plan override it.
  std::int64_t batches(std::int64_t epoch) override { return batches_.count(epoch); }

  // --- use

  /// Returns how it reads its inputs or, if `of_outputs`, the texts that it writes (tokenizer.separate).
  virtual TextReader reader(bool /*of_outputs*/) const { return {}; }
  /// Returns a prediction for each line, in order. Records no gradient. Thread-safe.
  virtual std::vector<Prediction> predict(std::span<const std::string> lines,
                                          const PredictOptions& options) = 0;
  /// Reads a table of inputs for predict(), with the layout in the settings; `take` receives the
  /// line of each row. Throws a SettingsError if the task reads no tables.
  void read_table(const std::string& file, const TakeText& take);
  /// Evaluates on a part of the data, or on other files. Throws an Error if it is empty.
  virtual Measurement measured(const MeasureSource& source) = 0;
  /// Returns at most `count` short lines of the data, as input for predict(): the examples of a
  /// report. They are held out if possible. Empty if the task has no lines.
  virtual std::vector<std::string> example_lines(std::size_t /*count*/) const { return {}; }

  /// Adds a remark for the user; "" is ignored.
  void remark(std::string text);
  void remark_all(std::vector<std::string> texts);
  /// Returns the remarks since the last call; the last one tells how many texts were cut.
  std::vector<std::string> take_remarks();

 protected:
  // --- implemented by each task

  /// Reads the parts of the data. Returns the digests of the non-empty ones.
  virtual std::map<std::string, std::string> read_parts() = 0;
  /// Returns what is learned from the training part, as files, which are opened next. Changes
  /// nothing except settings that were left open.
  virtual NamedFiles learned_files() = 0;
  virtual void open(const ReadFile& read) = 0;
  /// Returns a model_of() the settings. Before there is a vocabulary, assumes a small one.
  virtual std::unique_ptr<Module> make_model() = 0;

  // --- helpers for the implementation

  /// Returns read(report), and remarks on bytes that could not be decoded and on blank lines that
  /// were left out.
  template <class Read>
  auto reported(const Read& read) {
    ReadReport report;
    auto data = read(report);
    remark_on_reading(report);
    return data;
  }
  void remark_on_reading(const ReadReport& report);
  /// Returns measure(data), for the part that the source names or for read(files, layout, report).
  /// Throws an Error if the part is empty.
  template <class Data, class Read, class Measure>
  Measurement measured_data(const DataParts<Data>& parts, const MeasureSource& source, const Read& read,
                            const Measure& measure) {
    if (source.part.empty())
      return measure(reported([&](ReadReport& report) { return read(source.files, source.layout, report); }));
    const Data& data = part_of(parts, source.part);
    check(data.size() > 0, "the ", source.part, " part of the run's data is empty: name files to measure on");
    return measure(data);
  }
  TrainingSettings training() const { return settings_.read<TrainingSettings>("training"); }
  /// Whether training starts from trained weights.
  bool is_fine_tuned() const { return !training().from.empty(); }
  /// Plans the training batches, and remarks on examples that are left out. Unless
  /// training.batch_tokens is given, a batch holds the longest example.
  void plan_batches(const Lengths& lengths, BatchOptions options);
  /// Sets the steps within the limit unless the user set steps or epochs. Warm-up and evaluations are
  /// scaled with the steps. Adds a remark. Call it after plan_batches().
  void limit_epochs(const EpochLimit& limit);
  /// Returns the tokenizer that the settings describe, learned from the texts, as the file
  /// "tokenizer.json".
  NamedFiles learned_tokenizer(const TextSource& texts);
  std::vector<Metric> metrics(std::span<const double> values) const {
    return metrics_of(entry_.metrics, values);
  }
  /// Returns an evaluation that read `count` of `all` held-out tokens or texts.
  Evaluation evaluation(std::vector<Metric> metrics, std::size_t count, std::size_t all) const;
  /// Returns the result for `count` examples. The JSON has the metrics, optionally rounded(), and
  /// the count under the name of unit(): {"mrr":0.5,"pairs":300}.
  Measurement measurement(std::span<const double> values, std::size_t count, bool round = false) const;
  /// The tokens of a training batch, for model_of(); 0: the model is only used.
  std::int64_t batch_tokens() const { return trains_ ? training().batch_tokens : 0; }
  /// Returns the shape of an encoder from the settings.
  TransformerConfig encoder_config(std::int64_t vocabulary, std::int64_t classes = 0) const;
  template <class Model>
  Model& model_as() {
    return static_cast<Model&>(*model_);
  }

  /// The settings that the model was built with. They include data.max_tokens, from which some
  /// attentions derive strides and clusters.
  const Settings& trained() const { return trained_ ? *trained_ : settings_; }

  Settings settings_;
  const double label_smoothing_;  ///< of the settings, read once
  std::string unit_ = "tokens";
  std::vector<std::string> classes_ = {};
  EpochBatches<BatchPlan> batches_;
  /// Returns how many texts were cut since the last call; "" if none. Null: none can be.
  std::function<std::string()> truncation_message_;

 private:
  std::string advice_on_length() const;

  std::optional<Settings> trained_;  // none: settings_
  bool trains_ = false;
  const TaskEntry& entry_;
  std::map<std::string, std::string> digests_;
  NamedFiles files_;
  std::unique_ptr<Module> model_;
  LeafMutex remarks_mutex_;  // several threads may predict
  std::vector<std::string> remarks_;
};

// --- what only some tasks can do

/// A task whose model has outputs for lines alone.
class HasOutputs {
 public:
  virtual ~HasOutputs() = default;
  /// Returns the raw outputs of the model for lines: logits [B, classes], vectors [B, width] or
  /// scores. Tracked, so that the model can be trained further. Throws an Error for an invalid line.
  virtual Tensor line_outputs(std::span<const std::string> lines, Context& context) = 0;
};

/// A task that generates its answers token by token, so that predict() can pass them to `pieces`.
class GeneratesText {
 public:
  virtual ~GeneratesText() = default;
  /// Generates texts for a prompt (Run::generate()). Throws an Error for a prompt that the model
  /// cannot read.
  virtual std::vector<Prediction> generate(const std::string& prompt,
                                           const TextGenerationOptions& options) = 0;
};

/// Returns the task as an interface of its task. Throws an Error that says `why` if it has none.
template <class Interface, class... Why>
Interface& as_interface(Task& task, const Why&... why) {
  auto* const found = dynamic_cast<Interface*>(&task);
  check(found != nullptr, why...);
  return *found;
}

}  // namespace heed
