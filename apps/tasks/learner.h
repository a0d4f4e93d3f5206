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

#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/settings.h"
#include "heed/base/file.h"
#include "heed/core/device.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/models/decoding.h"
#include "heed/training/trainer.h"

namespace heed {

class Learner;

/// Ends a training after so many passes over the data, but not before so many steps.
struct PassLimit {
  std::int64_t passes, least_steps;
};

/// One line of the list of tasks.
struct TaskKind {
  std::string_view name;     ///< "classify": of its program, and in a run's files
  std::string_view summary;  ///< what it learns, in a line
  Stacks stacks;
  /// The first is what the best weights are kept by, unless set otherwise.
  std::span<const MetricKind> metrics;
  /// Every setting with its default; those for the user's data differ from those for the data that it brings
  /// along.
  Settings (*settings)(bool own_data);
  /// True when the settings name data; throws a SettingsError when they name half of it.
  bool (*names_data)(const Settings& settings);
  std::unique_ptr<Learner> (*make_learner)(const TaskKind& kind, Settings settings);
  /// What it takes from memory; empty: files alone.
  std::vector<ExampleTable> examples = {};
  /// Defaults, as JSON, of a training that starts from trained weights (training.from), whose learning rate
  /// follows from the width; empty: the usual ones.
  std::string_view fine_tuning = {};

  std::unique_ptr<Learner> make(Settings its_settings) const {
    return make_learner(*this, std::move(its_settings));
  }
};

/// The kind whose learner is an L.
template <class L>
TaskKind task_of(std::string_view name, std::string_view summary, Stacks stacks,
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

/// All tasks, in a fixed order. Adding one takes its file and its line in learner.cpp.
std::span<const TaskKind* const> task_kinds();
/// The task of a name; throws an Error with the nearest one when there is none.
const TaskKind& task_kind(std::string_view name);

/// The answer to one line.
struct Prediction {
  std::string text;        ///< the label, the translation, the continuation; "" for a blank line
  double probability = 0;  ///< of the answer: of a label; of a sequence the product over its tokens
  struct Alternative {
    std::string text;
    double probability = 0;
    std::optional<double> score = {};  ///< what the model gave it, where that says more
  };
  std::vector<Alternative> alternatives = {};  ///< all classes, or the best sequences: best first
  std::string error = {};                      ///< why there is no answer; "": there is one
  std::vector<float> vector = {};              ///< of an answer that is one: its numbers
};

struct PredictOptions {
  /// Gets what the model shows of its inside for each line that is not blank; null: nobody looks.
  CaptureFile* capture = nullptr;
  /// The number of the first line, in the capture ("lines.<number>") and errors.
  std::int64_t first_line = 0;
  /// What is drawn for a line follows from the seed and the line's number; true: every line is a first one,
  /// so that its answer does not depend on its place.
  bool each_first = false;
  TextPieces* pieces = nullptr;  ///< of one line alone: gets its answer while it is written (Run::stream())
  /// Of Run::predict(): a line that cannot be answered gets its Prediction::error; false: it throws.
  bool return_errors = false;

  /// The name of a line in the capture.
  std::string name_of(std::size_t line) const {
    return concat_text("lines.", first_line + static_cast<std::int64_t>(line));
  }
};

/// How Run::generate() writes. What is left open is as the settings of the run have it.
struct WritingOptions {
  std::optional<std::int64_t> max_tokens = {};  ///< at most so many tokens are written; from 1
  // As SamplingOptions has them. With one of these, or several samples, texts are drawn, not searched for.
  std::optional<double> temperature = {};
  std::optional<std::int64_t> top_k = {};
  std::optional<double> top_p = {};
  std::optional<std::uint64_t> seed = {};
  std::int64_t samples = 1;  ///< so many texts are written, 1 to 1,024

  bool draws() const { return samples > 1 || temperature || top_k || top_p || seed; }
  void apply_to(SamplingOptions& sampling, std::uint64_t& its_seed) const {
    sampling = {temperature.value_or(sampling.temperature), top_k.value_or(sampling.top_k),
                top_p.value_or(sampling.top_p)};
    its_seed = seed.value_or(its_seed);
  }
};

/// An answer that was wrong.
struct Mistake {
  std::string place, text, expected, predicted;
  double probability = 0;  ///< that the model gave to its answer
};

/// A text that was written for another, beside the one that was expected.
struct Written {
  std::string source, expected, answer;
};

/// What each example, or group of examples, adds to a metric, so that two models can be compared on the same
/// examples.
struct ExampleStatistics {
  std::string metric;        ///< whose value they give together; "": there are none
  std::string combine = {};  ///< how, from the sums of the rows: "mean" (the first over the second) or "bleu"
  std::vector<std::vector<double>> rows = {};
};

/// Data to measure on.
struct MeasureSource {
  std::string_view part;               ///< of the data that was read: "valid", "test" or "train"; "": files
  std::span<const std::string> files;  ///< named as the task's data settings have it
  const Settings& layout;              ///< how these are laid out
};

/// The kinds with their values, in their order.
std::vector<Metric> metrics_of(std::span<const MetricKind> kinds, std::span<const double> values);

/// A line of the data that was read, and what was expected of it where that is a text.
struct ExampleLine {
  std::string text, expected = {};
};

/// What measuring a trained model found.
struct Measurement {
  std::vector<Metric> metrics;
  std::string json;                    ///< one object: the metrics by name, and what else there is to say
  std::vector<Mistake> mistakes = {};  ///< the most confident first; of tasks that choose between labels
  std::int64_t count = 0;              ///< of examples
  ExampleStatistics examples = {};  ///< of one of the metrics, where it is made of what single examples add
};

/// Names and contents of files of a run, and a function that reads one; that throws an Error where it is
/// missing.
using NamedFiles = std::map<std::string, std::string>;
using ReadFile = std::function<std::string(std::string_view name)>;

/// A task at work: its settings, data, vocabulary and model. It trains (as a Task of the Trainer), measures
/// and predicts. train() (train.h) and Run (run.h) lead it through its life:
///
///   to train     check_settings, read_data, learn_vocabulary (or open_files), build, prepare_training
///   to be used   open_files, build, then predict and measure
///
/// A task derives from it, reads its settings in its constructor, and implements the steps. What tasks share
/// are objects and functions that it has: apps/tasks/data.h, examples.h, labelled.h.
class Learner : public Task {
 public:
  /// Throws a SettingsError for settings that do not fit together. Reads, allocates and writes nothing.
  Learner(const TaskKind& kind, Settings settings)
      : settings_(std::move(settings)),
        label_smoothing_(settings_.has("training.label_smoothing")
                             ? settings_.get<double>("training.label_smoothing")
                             : 0),
        kind_(kind) {}

  const TaskKind& kind() const { return kind_; }
  const Settings& settings() const { return settings_; }
  Module& model() override { return *model_; }
  /// What its examples are called: "texts", "pairs".
  std::string unit() const override { return unit_; }
  /// Whether its answers are texts that are written token by token, which predict() shows to `pieces`.
  bool writes_text() const { return writes_text_; }
  /// The names of the classes that it tells apart, in the order of its outputs; none: it does not.
  const std::vector<std::string>& known_classes() const { return classes_; }

  // --- its life

  /// Of a run that is used with other settings: those that it was trained with, which its model keeps. Before
  /// build().
  void set_trained(Settings settings) { trained_ = std::move(settings); }
  /// Of a run that goes on: takes what its training found out where the settings leave it open
  /// (tokenizer.kind=auto). `before`: what the run recorded.
  void keep_choices(const Settings& before);
  /// Throws a SettingsError for data that are named by half, and for a model that cannot be, or that takes
  /// more memory than there is. Reads, allocates and writes nothing.
  void check_settings();
  /// Reads the data of the settings, or makes the embedded ones.
  void read_data() { digests_ = read_parts(); }
  /// The digest of each part of the data that was read, "train", "valid", "test"; empty parts are left out.
  const std::map<std::string, std::string>& data_digests() const { return digests_; }
  /// Learns from the training part what belongs to the model beside its weights: tokenizer, labels.
  void learn_vocabulary();
  /// The same as files of the run; and back.
  const NamedFiles& files() const { return files_; }
  void open_files(const ReadFile& read);
  /// Makes the model for the vocabulary. Throws a SettingsError for settings that make no sense.
  void build(Device device);
  /// Turns the data that was read into batches.
  virtual void prepare_training() = 0;

  // --- use

  /// One answer for each line, in their order. Without a gradient. Several threads may call it at once.
  virtual std::vector<Prediction> predict(std::span<const std::string> lines,
                                          const PredictOptions& options) = 0;
  /// Reads a table of what predict() answers, laid out as the settings have it: `take` gets the line of each
  /// row. Throws a SettingsError where the task reads no tables.
  void read_table(const std::string& file, const TakeText& take);
  /// Measures on a part of the data that was read; throws an Error when it is empty.
  Measurement measure(std::string_view part) { return measured({part, {}, settings_}); }
  /// Measures on other files, named as the task's data settings have it.
  Measurement measure_files(std::span<const std::string> files) { return measured({"", files, settings_}); }
  /// Measures on a file in the layout of the task's ExampleTable, whatever the layout of the run's own files.
  Measurement measure_examples(const std::string& file);
  /// What the model computes for lines, before any choice or normalisation: logits [B, classes], vectors
  /// [B, width], scores. Tracked, so that the model can be trained further. Throws an Error for a line that
  /// it cannot read, and where the task has no such output.
  virtual Tensor outputs_of_lines(std::span<const std::string> lines, Context& context);
  /// Texts for a prompt (Run::generate()). Throws an Error for a prompt that the model cannot read, and where
  /// the task writes no texts.
  virtual std::vector<Prediction> generate(const std::string& prompt, const WritingOptions& options);
  /// log p(target | line) [B] of each pair, natural logarithm, the end of the target included. Tracked.
  /// Throws an Error where the task writes no text for a text.
  virtual Tensor log_probabilities_of(std::span<const std::string> lines,
                                      std::span<const std::string> targets, Context& context);
  /// Some lines of the data that was read, held-out ones where there are any, as predict() takes them and not
  /// longer than they have to be: what a report shows the model at work on. At most `count`; none where a
  /// task has no lines.
  std::vector<std::string> example_lines(std::size_t count) const;
  /// Answers to some examples beside what was expected; none where a task writes no text for a text.
  std::vector<Written> written_examples(std::size_t count);

  /// The batches of the plan; a task with another kind of plan has its own.
  std::int64_t batches(std::int64_t epoch) override { return batches_.count(epoch); }

  /// Says what is worth telling the user; "": nothing.
  void remark(std::string text);
  void remark_all(std::vector<std::string> texts);
  /// What was said since the last call, and last how many texts were cut.
  std::vector<std::string> take_remarks();

 protected:
  // --- the steps of a task

  /// Reads the parts of the data, and returns the digests of those that are not empty.
  virtual std::map<std::string, std::string> read_parts() = 0;
  /// What is learned from the training part, as files. It changes nothing but settings that were left open:
  /// the files are opened next.
  virtual NamedFiles learned_files() = 0;
  virtual void open(const ReadFile& read) = 0;
  /// A model_of() the settings, for the vocabulary, or before there is one for a small one.
  virtual std::unique_ptr<Module> make_model() = 0;
  virtual Measurement measured(const MeasureSource& source) = 0;
  /// What example_lines() and, with `answered`, written_examples() show.
  virtual std::vector<ExampleLine> examples(std::size_t /*count*/, bool /*answered*/) const { return {}; }
  virtual void read_rows(const std::string& file, const TakeText& take, ReadReport& report) const;
  /// How many texts were cut since the last call; "": none. Said once for all that a command reads.
  virtual std::string take_cut_message() { return ""; }

  // --- what it needs for them

  /// What read(report) gives; says how many bytes of files were no characters, and how many blank lines were
  /// left out, if any.
  template <class Read>
  auto reported(const Read& read) {
    ReadReport report;
    auto data = read(report);
    remark_on_reading(report);
    return data;
  }
  void remark_on_reading(const ReadReport& report);
  /// measure(data) of the part that the source names, or of what read(files, layout, report) finds in its
  /// files. Throws an Error when the part is empty.
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
  /// Plans the training's batches; says what is left out.
  void plan_batches(const Lengths& lengths, const BatchOptions& options);
  /// Where nobody has set steps or epochs, ends training within these limits; warm-up and evaluations keep
  /// their share. Says so. After plan_batches().
  void limit_passes(const PassLimit& limit);
  /// The tokenizer that the settings ask for, of such texts, as a file "tokenizer.json".
  NamedFiles learned_tokenizer(const TextSource& texts);
  std::vector<Metric> metrics(std::span<const double> values) const {
    return metrics_of(kind_.metrics, values);
  }
  Evaluation evaluation(std::vector<Metric> metrics) const {
    return {std::move(metrics), settings_.get<std::string>("training.keep_best_by")};
  }
  /// Of one that read `count` of `all` held-out tokens or texts.
  Evaluation evaluation(std::vector<Metric> metrics, std::size_t count, std::size_t all) const {
    Evaluation found = evaluation(std::move(metrics));
    if (count < all)
      found.sample = static_cast<std::int64_t>(count), found.all = static_cast<std::int64_t>(all);
    return found;
  }
  /// What was measured on `count` examples. Its JSON has the metrics, on request rounded(), and the count as
  /// unit() names it: {"mrr":0.5,"pairs":300}.
  Measurement measurement(std::span<const double> values, std::size_t count, bool round = false) const;
  std::int64_t batch_tokens() const { return settings_.get<std::int64_t>("training.batch_tokens"); }
  /// The shape of an encoder, as the settings have it.
  TransformerConfig encoder_config(std::int64_t vocabulary, std::int64_t classes = 0) const;
  template <class Model>
  Model& model_as() {
    return static_cast<Model&>(*model_);
  }

  /// What the model is made of: data.max_tokens, too, of which some attentions take their strides and
  /// clusters.
  const Settings& trained() const { return trained_ ? *trained_ : settings_; }

  Settings settings_;
  const double label_smoothing_;  ///< of the settings, read once
  std::string unit_ = "tokens";
  bool writes_text_ = false;
  std::vector<std::string> classes_ = {};
  EpochBatches<BatchPlan> batches_;

 private:
  std::optional<Settings> trained_;  // none: settings_
  const TaskKind& kind_;
  std::map<std::string, std::string> digests_;
  NamedFiles files_;
  std::unique_ptr<Module> model_;
  std::mutex remarks_mutex_;  // several threads may predict
  std::vector<std::string> remarks_;
};

// --- examples in memory (apps/tasks/data.h), as files that tasks read

/// Stands for the folder of the run in the settings of "data" in its config.json.
inline constexpr std::string_view data_of_run = "<run>";
/// Settings of "data" that name a file in the folder `from` name that file in `to`.
void move_data(Settings& settings, const std::filesystem::path& from, const std::filesystem::path& to);

/// Examples in memory as files in a temporary folder, in the layout that the task reads.
class ExampleFiles {
 public:
  /// Throws an Error that names part, column and row for what the task cannot learn from: another number of
  /// columns, columns of different lengths, none at all, a text that is not UTF-8 or holds a NUL.
  ExampleFiles(const TaskKind& kind, std::span<const Examples> examples);

  const std::filesystem::path& folder() const { return folder_.path(); }
  /// Names and contents: "train.jsonl".
  const std::map<std::string, std::string>& files() const { return files_; }
  std::string path_of(const Examples& examples) const;
  /// Makes the settings name the files. Throws a SettingsError where they already name files or their layout,
  /// and when there is nothing to learn from.
  void name_in(Settings& settings) const;

 private:
  const ExampleTable& table_of(const std::string& part) const;
  std::string name_of(const std::string& part) const;

  const TaskKind& kind_;
  std::vector<std::string> parts_;
  std::map<std::string, std::string> files_;
  std::size_t train_columns_ = 0;
  TemporaryFolder folder_{"heed-examples"};
};

}  // namespace heed
