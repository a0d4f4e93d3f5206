#pragma once

#include <filesystem>
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
#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/settings.h"
#include "heed/base/file.h"
#include "heed/base/fork.h"
#include "heed/core/device.h"
#include "heed/models/decoding.h"
#include "heed/text/tokenizer.h"
#include "heed/training/trainer.h"

namespace heed {

class Learner;

/// How the data set the steps: at most this many passes, but at least this many steps; and at least
/// one pass, if that takes no more than `most_steps`, else that many. 0: not more than by default.
struct EpochLimit {
  std::int64_t passes, least_steps, most_steps = 0;
};
/// The limit for trained weights, whose few epochs suit BERT (Devlin et al. 2019, appendix A).
inline constexpr EpochLimit fine_tuning_epoch_limit = {4, 100};

/// An entry of the list of tasks.
struct TaskKind {
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
  std::unique_ptr<Learner> (*make_learner)(const TaskKind& kind, Settings settings);
  /// The tables of examples that it accepts from memory; empty: it reads only files.
  std::vector<ExampleTable> examples = {};
  /// Defaults, as JSON, for training that starts from trained weights (training.from). Their
  /// learning rate is chosen from the width. Empty: the usual defaults.
  std::string_view fine_tuning = {};

  std::unique_ptr<Learner> make(Settings its_settings) const {
    return make_learner(*this, std::move(its_settings));
  }
};

/// Returns the kind of a task whose learner has type L.
template <class L>
TaskKind make_task_kind(std::string_view name, std::string_view summary, Stacks stacks,
                        std::span<const MetricKind> metrics, Settings (*settings)(bool own_data),
                        bool (*names_data)(const Settings& settings), std::vector<ExampleTable> examples = {},
                        std::string_view fine_tuning = {}) {
  return {name,
          summary,
          stacks,
          metrics,
          settings,
          names_data,
          [](const TaskKind& kind, Settings its_settings) -> std::unique_ptr<Learner> {
            return std::make_unique<L>(kind, std::move(its_settings));
          },
          std::move(examples),
          fine_tuning};
}

/// Returns all tasks, in a fixed order. To add one, write its file and add it to the list in
/// learner.cpp.
std::span<const TaskKind* const> task_kinds();
/// Returns the task with this name. Throws an Error with the nearest name if there is none.
const TaskKind& task_kind(std::string_view name);

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
};

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

  /// Returns the name of a line in the capture.
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
  std::optional<std::uint64_t> seed = {};
  std::int64_t samples = 1;  ///< number of texts, 1 to 1,024

  bool draws() const { return samples > 1 || temperature || top_k || top_p || seed; }
  void apply_to(SamplingOptions& sampling, std::uint64_t& its_seed) const {
    sampling = {temperature.value_or(sampling.temperature), top_k.value_or(sampling.top_k),
                top_p.value_or(sampling.top_p)};
    its_seed = seed.value_or(its_seed);
  }
};

/// A wrong prediction.
struct Mistake {
  std::string place, text, expected, predicted;
  double probability = 0;  ///< of the predicted answer
};

/// A generated text next to the expected one.
struct GeneratedExample {
  std::string source, expected, answer;
};

/// The contribution of each example, or group of examples, to a metric. Comparisons of two models
/// on the same examples need it.
struct ExampleStatistics {
  std::string metric;        ///< its name; "": there are no rows
  std::string combine = {};  ///< computes it from column sums: "mean" (first / second) or "bleu"
  std::vector<std::vector<double>> rows = {};
};

/// The data of an evaluation: a part of the run's data, or other files.
struct MeasureSource {
  std::string_view part;               ///< "valid", "test" or "train"; "": `files`
  std::span<const std::string> files;  ///< as many as the task's data settings name
  const Settings& layout;              ///< settings that describe the layout of `files`
};

/// Returns metrics from their kinds and values, in the same order.
std::vector<Metric> metrics_of(std::span<const MetricKind> kinds, std::span<const double> values);

/// A line of the task's data, and the expected answer if that is a text.
struct ExampleLine {
  std::string text, expected = {};
};

/// The result of an evaluation.
struct Measurement {
  std::vector<Metric> metrics;
  std::string json;                    ///< one object: the metrics by name, and more figures
  std::vector<Mistake> mistakes = {};  ///< for tasks with labels; the most confident first
  std::int64_t count = 0;              ///< of examples
  ExampleStatistics examples = {};     ///< for a metric that is computed from single examples
};

/// Names and contents of a run's files; and a function that reads one, which throws an Error if it
/// is missing.
using NamedFiles = std::map<std::string, std::string>;
using ReadFile = std::function<std::string(std::string_view name)>;

/// A task instance: its settings, data, vocabulary and model. It trains (as a Task of the Trainer),
/// evaluates and predicts. train() (train.h) and Run (run.h) call its functions in this order:
///
///   to train     check_settings, read_data, learn_vocabulary (or open_files), build,
///                prepare_training
///   to predict   open_files, build, then predict and measure
///
/// To implement a task, derive from Learner, read the settings in the constructor and implement the
/// virtual functions. apps/tasks/data.h, examples.h and labelled.h hold code that tasks share.
class Learner : public Task {
 public:
  /// Throws a SettingsError for settings of its use that contradict each other. Those of training
  /// are for check_training(): they must not keep a model from being opened. Reads, allocates and
  /// writes nothing.
  Learner(const TaskKind& kind, Settings settings)
      : settings_(std::move(settings)),
        label_smoothing_(settings_.has("training.label_smoothing")
                             ? settings_.get<double>("training.label_smoothing")
                             : 0),
        kind_(kind) {}

  const TaskKind& kind() const { return kind_; }
  const Settings& settings() const { return settings_; }
  Module& model() override { return *model_; }
  /// The unit of its examples: "texts", "pairs".
  std::string unit() const override { return unit_; }
  /// Whether its answers are generated token by token, so that predict() can pass them to `pieces`.
  bool writes_text() const { return writes_text_; }
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

  // --- use

  /// Returns a prediction for each line, in order. Records no gradient. Thread-safe.
  virtual std::vector<Prediction> predict(std::span<const std::string> lines,
                                          const PredictOptions& options) = 0;
  /// Reads a table of inputs for predict(), with the layout in the settings; `take` receives the
  /// line of each row. Throws a SettingsError if the task reads no tables.
  void read_table(const std::string& file, const TakeText& take);
  /// Evaluates on a part of the data. Throws an Error if it is empty.
  Measurement measure(std::string_view part) { return measured({part, {}, settings_}); }
  /// Evaluates on other files, as many as the task's data settings name.
  Measurement measure_files(std::span<const std::string> files) { return measured({"", files, settings_}); }
  /// Evaluates on a file in the layout of the task's ExampleTable, regardless of the layout of the
  /// run's own files.
  Measurement measure_examples(const std::string& file);
  /// Returns the raw outputs of the model for lines: logits [B, classes], vectors [B, width] or
  /// scores. Tracked, so that the model can be trained further. Throws an Error for an invalid
  /// line, and if the task has no such output.
  virtual Tensor line_outputs(std::span<const std::string> lines, Context& context);
  /// Generates texts for a prompt (Run::generate()). Throws an Error for a prompt that the model
  /// cannot read, and if the task generates no text.
  virtual std::vector<Prediction> generate(const std::string& prompt, const TextGenerationOptions& options);
  /// Returns log p(target | line) for each pair, [B], natural logarithm, including the end of the
  /// target. Tracked. Throws an Error unless the task maps a text to a text.
  virtual Tensor target_log_probabilities(std::span<const std::string> lines,
                                          std::span<const std::string> targets, Context& context);
  /// Returns at most `count` short lines of the data, as input for predict(): the examples of a
  /// report. They are held out if possible. Empty if the task has no lines.
  std::vector<std::string> example_lines(std::size_t count) const;
  /// Returns generated and expected answers for some examples; empty unless the task maps a text to
  /// a text.
  std::vector<GeneratedExample> generated_examples(std::size_t count);

  /// The number of batches in the plan; tasks with another kind of plan override it.
  std::int64_t batches(std::int64_t epoch) override { return batches_.count(epoch); }

  /// Adds a remark for the user; "" is ignored.
  void remark(std::string text);
  void remark_all(std::vector<std::string> texts);
  /// Returns the remarks since the last call; the last one tells how many texts were cut.
  std::vector<std::string> take_remarks();

 protected:
  // --- implemented by each task

  /// Reads the parts of the data. Returns the digests of the non-empty ones.
  virtual std::map<std::string, std::string> read_parts() = 0;
  /// Throws a SettingsError for settings of training that contradict each other.
  virtual void check_training() const {}
  /// Returns what is learned from the training part, as files, which are opened next. Changes
  /// nothing except settings that were left open.
  virtual NamedFiles learned_files() = 0;
  virtual void open(const ReadFile& read) = 0;
  /// Returns a model_of() the settings. Before there is a vocabulary, assumes a small one.
  virtual std::unique_ptr<Module> make_model() = 0;
  virtual Measurement measured(const MeasureSource& source) = 0;
  /// Returns the lines of example_lines() or, with `answered`, the examples of generated_examples().
  virtual std::vector<ExampleLine> examples(std::size_t /*count*/, bool /*answered*/) const { return {}; }
  virtual void read_rows(const std::string& file, const TakeText& take, ReadReport& report) const;
  /// Returns how many texts were cut since the last call; "" if none. Reported once for all input
  /// of a command.
  virtual std::string take_truncation_message() { return ""; }

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
  /// Whether training starts from trained weights.
  bool is_fine_tuned() const { return !settings_.get<std::string>("training.from").empty(); }
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
    return metrics_of(kind_.metrics, values);
  }
  Evaluation evaluation(std::vector<Metric> metrics) const {
    return {std::move(metrics), settings_.get<std::string>("training.keep_best_by")};
  }
  /// Returns an evaluation that read `count` of `all` held-out tokens or texts.
  Evaluation evaluation(std::vector<Metric> metrics, std::size_t count, std::size_t all) const {
    Evaluation found = evaluation(std::move(metrics));
    if (count < all)
      found.sample = static_cast<std::int64_t>(count), found.all = static_cast<std::int64_t>(all);
    return found;
  }
  /// Returns the result for `count` examples. The JSON has the metrics, optionally rounded(), and
  /// the count under the name of unit(): {"mrr":0.5,"pairs":300}.
  Measurement measurement(std::span<const double> values, std::size_t count, bool round = false) const;
  /// The tokens of a training batch, for model_of(); 0: the model is only used.
  std::int64_t batch_tokens() const {
    return trains_ ? settings_.get<std::int64_t>("training.batch_tokens") : 0;
  }
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
  bool writes_text_ = false;
  std::vector<std::string> classes_ = {};
  EpochBatches<BatchPlan> batches_;

 private:
  std::string advice_on_length() const;

  std::optional<Settings> trained_;  // none: settings_
  bool trains_ = false;
  const TaskKind& kind_;
  std::map<std::string, std::string> digests_;
  NamedFiles files_;
  std::unique_ptr<Module> model_;
  LeafMutex remarks_mutex_;  // several threads may predict
  std::vector<std::string> remarks_;
};

// --- examples in memory (apps/tasks/data.h), as files that tasks read

/// The placeholder for the run's folder in the "data" settings of its config.json.
inline constexpr std::string_view data_of_run = "<run>";
/// Changes "data" settings that name a file in the folder `from` to name the same file in `to`.
void rebase_data_paths(Settings& settings, const std::filesystem::path& from,
                       const std::filesystem::path& to);

/// Examples from memory, written to files in a temporary folder in the layout that the task reads.
class ExampleFiles {
 public:
  /// Throws an Error naming part, column and row for invalid examples: a wrong number of columns,
  /// columns of different lengths, no rows, or a text that is not UTF-8 or contains a NUL.
  ExampleFiles(const TaskKind& kind, std::span<const Examples> examples);

  const std::filesystem::path& folder() const { return folder_.path(); }
  /// Names and contents: "train.jsonl".
  const std::map<std::string, std::string>& files() const { return files_; }
  std::string path_of(const Examples& examples) const;
  /// Sets the "data" settings to these files. Throws a SettingsError if the settings already name
  /// files or their layout, and if there are no training examples.
  void set_paths(Settings& settings) const;

 private:
  const ExampleTable& find_table(const std::string& part) const;
  std::string name_of(const std::string& part) const;

  const TaskKind& kind_;
  std::vector<std::string> parts_;
  std::map<std::string, std::string> files_;
  std::size_t train_columns_ = 0;
  TemporaryFolder folder_{"heed-examples"};
};

}  // namespace heed
