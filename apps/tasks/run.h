#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "heed/apps/tasks/capture.h"
#include "heed/apps/tasks/learner.h"
#include "heed/core/ranks.h"
#include "heed/training/checkpoint.h"
#include "heed/training/run_folder.h"
#include "heed/training/trainer.h"

namespace heed {

/// How a trained run is opened.
struct RunOptions {
  std::string device = {};  ///< as find_device() has it; "": the one that the run names
  /// "best": of the best evaluation; "last": of the last checkpoint; "initial": as training began; "": best
  /// where the run has measured itself, else last.
  std::string weights = {};
  std::string config = {};  ///< a JSON file of settings, laid over the run's; "": none
  /// "decoding.beam=1", over that. None may change the model. `threads` is recorded and left to the program,
  /// whose whole process it is about (set_cpu_threads).
  std::vector<std::string> settings = {};
  bool verify = true;              ///< false: files that were changed after they were written are used anyway
  const TaskKind* kind = nullptr;  ///< of a task that is not in the list; null: the run says
};

/// A trained run, of whatever task:
///
///   auto run = heed::Run::open("runs/subj");
///   for (const heed::Prediction& answer : run.predict(lines)) std::cout << answer.text << '\n';
///
/// Any number of threads may call predict(), outputs(), log_probabilities() and stream() at once, all with
/// the same weights; only those of a recommend run wait for each other. measure() and its kin read data into
/// the run: they wait until no other call is under way, and others for them.
class Run {
 public:
  /// Opens a run with its settings, vocabulary and weights. Throws an Error when there is none, when a file
  /// is missing, damaged or of another run, and a SettingsError for options that make no sense.
  static Run open(const std::filesystem::path& folder, const RunOptions& options = {});

  std::string_view task() const { return learner_->kind().name; }
  const Settings& settings() const { return learner_->settings(); }
  /// The task at work, for what is its own.
  Learner& learner() { return *learner_; }

  /// One answer for each line. Throws an Error for one that is not UTF-8.
  std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options = {});
  std::vector<Prediction> predict(const std::vector<std::string>& lines, const PredictOptions& options = {}) {
    return predict(std::span(lines), options);
  }
  /// What the model computes for lines (Learner::outputs_of_lines). Throws an Error for one that is not
  /// UTF-8.
  Tensor outputs(std::span<const std::string> lines, Context& context);
  /// How likely targets are, given lines (Learner::log_probabilities_of): [B].
  Tensor log_probabilities(std::span<const std::string> lines, std::span<const std::string> targets,
                           Context& context);
  /// The answer to one line, of a task that writes texts: `on_text` gets it in pieces, in this thread, as
  /// soon as they are certain: of greedy search and sampling token by token, of beam search when all
  /// hypotheses agree. Together they are the answer's text, the same as predict() gives. When `on_text`
  /// returns false the answer is the text so far, with probability 0.
  Prediction stream(const std::string& line, const OnText& on_text);
  /// The digest of a part of the run's own data, "valid", "test" or "train"; "" where there is none.
  std::string data_digest(std::string_view part) const { return files_.data_digest(part); }
  bool has_part(std::string_view part) const { return !data_digest(part).empty(); }
  /// Measures on a part of the run's own data: "valid", "test" or "train". Throws an Error when that data is
  /// no longer what the run was made with.
  Measurement measure(std::string_view part = "valid");
  /// Measures on other files, as many as the task's data takes: texts, or sources and targets.
  Measurement measure_files(std::span<const std::string> files);
  /// Measures on examples in memory.
  Measurement measure_examples(const Examples& examples);

 private:
  Run(std::unique_ptr<Learner> learner, RunFiles files)
      : learner_(std::move(learner)), files_(std::move(files)) {}

  std::unique_ptr<Learner> learner_;
  RunFiles files_;
  std::unique_ptr<std::shared_mutex> use_ = std::make_unique<std::shared_mutex>();
};

/// Where and how a run is trained.
struct TrainRequest {
  std::filesystem::path folder;
  /// Goes on from the last checkpoint of the folder, to the same bits as without the break.
  bool resume = false;
  bool verify = true;  ///< false: goes on although files or data are not those that the run was made with
  TrainerCallbacks callbacks = {};
  /// The processes that train together, this being one of them; null: one alone. Only rank 0 touches the
  /// folder and talks. What they are to train must be the same for all; the result is that of one process.
  Ranks* ranks = nullptr;
  /// What to learn from, in place of files that the settings name. They become files of the run, so that it
  /// can be resumed and measured without them; a run that goes on has its own, and these must be the same.
  std::span<const Examples> examples = {};
};

/// Trains a task, with the number of threads that the process has: reads the data, learns the vocabulary,
/// builds the model, fills the folder. Settings and folder are checked before any data is read, and nothing
/// is written before training can begin. Throws a SettingsError or an Error.
TrainResult train_run(const TaskKind& kind, const Settings& settings, const TrainRequest& request);

/// The settings of a run in a folder, over the task's defaults. Throws an Error for a run of another task.
Settings settings_of_run(const TaskKind& kind, const RunFiles& files);

// What ranks must have in common before they train one model (core/ranks.h), found out before any time is
// spent. Every function is called by all ranks at once; what one rank finds wrong all find, with the same
// words.

/// Throws a SettingsError that names the setting, the values and the rank when they do not mean to train the
/// same. "threads" and "device" may differ.
void check_same_settings(Ranks& ranks, const TaskKind& kind, const Settings& settings);
/// Throws an Error when a rank has read other data.
void check_same_data(Ranks& ranks, const std::map<std::string, std::string>& digests);
/// What there is to say when ranks compute with different kernels; "": they do not.
std::string platform_remark(Ranks& ranks, Device device);
/// Names and contents of files that rank 0 has.
std::map<std::string, std::string> broadcast_files(Ranks& ranks,
                                                   const std::map<std::string, std::string>& files);

/// Mean and sample standard deviation (0 for one value).
struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread_of(std::span<const double> values);

/// What cross-validation found.
struct FoldsResult {
  bool finished = false;  ///< false: stopped on request; resuming goes on
  /// One object: the mean of each metric over the folds, by name; "deviation", the standard deviations of the
  /// same (with n - 1 beneath); "folds", the metrics of each fold.
  std::string json;
};

/// K-fold cross-validation of a task with "data.folds" (apps/tasks/labelled.h): K runs in the folders fold-1 ...
/// fold-K of request.folder, each trained and tested on other parts of the data. Which these are follows from
/// data.split_seed alone. Resumed, folds that are finished are not trained again. Throws as train_run does.
FoldsResult train_folds(const TaskKind& kind, const Settings& settings, const TrainRequest& request);

/// Whether the settings ask for all folds of a cross-validation.
bool asks_for_all_folds(const Settings& settings);

/// Where the settings of a run stand: in the folder itself, or where it holds folds in that of the first.
std::filesystem::path folder_of_settings(const std::filesystem::path& folder);

}  // namespace heed
