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

#include "heed/apps/tasks/capture.h"
#include "heed/apps/tasks/data.h"
#include "heed/apps/tasks/settings.h"
#include "heed/core/device.h"
#include "heed/data/text_file.h"
#include "heed/data/tokenizer.h"
#include "heed/training/trainer.h"

namespace heed {

/// Which stacks a model has, and so which attentions can be chosen.
enum class Stacks { encoder, decoder, encoder_decoder };

/// A figure that a task measures itself by.
struct MetricKind {
  std::string_view name;  ///< in JSON, progress and "training.keep_best_by"
  bool larger_is_better;
};

class Learner;

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
  /// What it takes from memory (apps/tasks/train.h); empty: files alone.
  std::vector<ExampleTable> examples = {};

  std::unique_ptr<Learner> make(Settings its_settings) const {
    return make_learner(*this, std::move(its_settings));
  }
};

/// The kind whose learner is an L.
template <class L>
TaskKind task_of(std::string_view name, std::string_view summary, Stacks stacks,
                 std::span<const MetricKind> metrics, Settings (*settings)(bool own_data),
                 bool (*names_data)(const Settings& settings), std::vector<ExampleTable> examples = {}) {
  return {name,
          summary,
          stacks,
          metrics,
          settings,
          names_data,
          [](const TaskKind& kind, Settings its_settings) -> std::unique_ptr<Learner> {
            return std::make_unique<L>(kind, std::move(its_settings));
          },
          std::move(examples)};
}

/// All tasks, in a fixed order. Adding one takes its file and its line in tasks.cpp.
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
  std::vector<Alternative> alternatives;  ///< all classes, or the best sequences: best first
  std::string error;                      ///< why there is no answer; "": there is one
  std::vector<float> vector = {};         ///< of an answer that is one: its numbers
};

struct PredictOptions {
  /// Gets what the model shows of its inside for each line that is not blank; null: nobody looks.
  CaptureFile* capture = nullptr;
  std::int64_t first_line = 0;  ///< the number of the first line in the capture: "lines.<number>"
  /// What is drawn for a line follows from the seed and the line's number; true: every line is a first one,
  /// so that its answer does not depend on its place.
  bool each_first = false;
  TextPieces* pieces = nullptr;  ///< of one line alone: gets its answer while it is written (Run::stream())
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

/// What measuring a trained model found.
struct Measurement {
  std::vector<Metric> metrics;
  std::string json;                 ///< one object: the metrics by name, and what else there is to say
  std::vector<Mistake> mistakes;    ///< the most confident first; of tasks that choose between labels
  std::int64_t count = 0;           ///< of examples
  ExampleStatistics examples = {};  ///< of one of the metrics, where it is made of what single examples add
};

/// A task at work: its settings, data, vocabulary and model. It trains (as a Task of the Trainer), measures
/// and predicts. Run (run.h) leads it through its life; a task implements the steps:
///
///   to train     check, read_data, learn_vocabulary (or open_files), build, prepare_training
///   to be used   open_files, build, then predict and measure
class Learner : public Task {
 public:
  Learner(const TaskKind& kind, Settings settings)
      : settings_(std::move(settings)),
        label_smoothing_(settings_.get<double>("training.label_smoothing")),
        kind_(kind) {}

  const TaskKind& kind() const { return kind_; }
  const Settings& settings() const { return settings_; }

  /// Of a run that is used with other settings: those that it was trained with, which its model keeps. Before
  /// build().
  void set_trained(Settings settings) { trained_ = std::move(settings); }

  /// Throws a SettingsError for settings that do not fit together. Reads, allocates and writes nothing.
  virtual void check_settings() const = 0;
  /// Of a run that goes on: takes what its training found out where the settings leave it open
  /// (tokenizer.kind=auto). `before`: what the run recorded.
  void keep_choices(const Settings& before);
  /// Reads the data of the settings, or makes the embedded ones.
  virtual void read_data() = 0;
  /// The digest of each part of the data that was read, "train", "valid", "test"; a part may be left out that
  /// is empty.
  virtual std::map<std::string, std::string> data_digests() const = 0;
  /// Learns from the training part what belongs to the model beside its weights: tokenizer, labels.
  virtual void learn_vocabulary() = 0;
  /// The same as files of the run, by name; and back.
  virtual std::map<std::string, std::string> files() const = 0;
  virtual void open_files(const std::function<std::string(std::string_view name)>& read) = 0;
  /// Makes the model for the vocabulary. Throws a SettingsError for settings that make no sense.
  virtual void build(Device device) = 0;
  /// Turns the data that was read into batches.
  virtual void prepare_training() = 0;

  /// One answer for each line, in their order. Without a gradient. Several threads may call it at once.
  virtual std::vector<Prediction> predict(std::span<const std::string> lines,
                                          const PredictOptions& options) = 0;
  /// Reads a table of what predict() answers, laid out as the settings have it: `take` gets the line of each
  /// row. Throws a SettingsError where the task reads no tables.
  void read_table(const std::string& file, const TakeText& take);
  /// Measures on a part of the data that was read; throws an Error when it is empty.
  virtual Measurement measure(std::string_view part) = 0;
  /// Measures on other files, named as the task's data settings have it.
  virtual Measurement measure_files(std::span<const std::string> files) = 0;
  /// Measures on a file in the layout of the task's ExampleTable, whatever the layout of the run's own files.
  Measurement measure_examples(const std::string& file);

  /// Whether its answers are texts that are written token by token, which predict() shows to `pieces`.
  virtual bool writes_text() const { return false; }

  /// The names of the classes that it tells apart, in the order of its outputs; none: it does not.
  virtual std::vector<std::string> known_classes() const { return {}; }
  /// What the model computes for lines, before any choice or normalisation: logits [B, classes], vectors
  /// [B, width], scores. Tracked, so that the model can be trained further. Throws an Error for a line that
  /// it cannot read, and where the task has no such output.
  virtual Tensor outputs_of_lines(std::span<const std::string> lines, Context& context);
  /// log p(target | line) [B] of each pair, natural logarithm, the end of the target included. Tracked.
  /// Throws an Error where the task writes no text for a text.
  virtual Tensor log_probabilities_of(std::span<const std::string> lines,
                                      std::span<const std::string> targets, Context& context);

  /// Some lines of the data that was read, held-out ones where there are any, as predict() takes them and not
  /// longer than they have to be: what a report shows the model at work on. At most `count`; none where a
  /// task has no lines.
  virtual std::vector<std::string> example_lines(std::size_t /*count*/) const { return {}; }

  /// Answers to the first of such examples beside what was expected; none where a task writes no text for a
  /// text.
  virtual std::vector<Written> written_examples(std::size_t /*count*/) { return {}; }

  /// What is worth telling the user since the last call.
  std::vector<std::string> take_remarks();

 protected:
  virtual void read_rows(const std::string& file, const TakeText& take, ReadReport& report) const;
  void remark(std::string text);
  /// Says how many bytes of files were no characters, and how many blank lines were left out, if any.
  void remark_on_reading(const ReadReport& report);
  /// Where tokenizer.kind is "auto" and a tokenizer is to be learned, sets what suits the texts
  /// (data/token_kind.h), and says so.
  void choose_token_kind(const TextSource& texts);
  /// The kind's metrics with their values, in the kind's order.
  std::vector<Metric> metrics(std::span<const double> values) const;
  Evaluation evaluation(std::vector<Metric> metrics) const {
    return {std::move(metrics), settings_.get<std::string>("training.keep_best_by")};
  }
  /// What was measured on `count` examples. Its JSON has the metrics, on request rounded(), and the count as
  /// unit() names it: {"mrr":0.5,"pairs":300}.
  Measurement measurement(std::span<const double> values, std::size_t count, bool round = false) const;
  std::int64_t batch_tokens() const { return settings_.get<std::int64_t>("training.batch_tokens"); }

  /// What the model is made of: data.max_tokens, too, of which some attentions take their strides and
  /// clusters.
  const Settings& trained() const { return trained_ ? *trained_ : settings_; }

  Settings settings_;
  const double label_smoothing_;  ///< of the settings, read once

 private:
  std::optional<Settings> trained_;  // none: settings_
  const TaskKind& kind_;
  std::mutex remarks_mutex_;  // several threads may predict
  std::vector<std::string> remarks_;
};

}  // namespace heed
