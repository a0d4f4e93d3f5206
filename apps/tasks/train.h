#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/task.h"
#include "heed/core/ranks.h"
#include "heed/training/trainer.h"

// Training: combines settings from all sources, and trains a task.
//
//   const heed::TaskEntry& entry = heed::task_entry("classify");
//   const heed::Examples examples[] = {{"train", {texts, labels}}};
//   const heed::Settings settings = heed::training_settings(entry, {.own_data = true});
//   heed::train(entry, settings, {.folder = "runs/mine", .examples = examples});

namespace heed {

// --- settings

/// A setting given by the user.
struct GivenSetting {
  std::string name;                    ///< "training.steps", or an option of an attention
  std::string value;                   ///< JSON or plain text
  std::string origin = "the program";  ///< for messages
};

/// All settings that a user gives for training.
struct GivenSettings {
  /// True: examples come from memory; false: as the settings say.
  bool own_data = false;
  std::string config = {};                  ///< a JSON file of settings; "": none
  AttentionNames attention = {};            ///< overrides `config`
  std::vector<GivenSetting> settings = {};  ///< override both, in this order
  std::filesystem::path resumed = {};       ///< the run to resume; empty: a new run
  bool verify = true;                       ///< as in TrainRequest
};

/// Returns the settings in a JSON object one by one; names may be dotted, objects nested, or both.
/// Throws a SettingsError for any other text.
std::vector<GivenSetting> given_settings(const TaskEntry& entry, std::string_view json,
                                         const std::string& origin);

/// Returns the settings for training. Later sources override earlier ones: defaults (or the
/// settings of the resumed run), the model of training.from, config, attention, settings. The
/// defaults are those for the user's data if the settings name some. `notes`, unless null, receives
/// remarks about the attentions. Throws a SettingsError.
Settings training_settings(const TaskEntry& entry, const GivenSettings& given,
                           std::vector<std::string>* notes = nullptr);

// --- training

/// A request to train() for a new or resumed run.
struct TrainRequest {
  std::filesystem::path folder;
  /// Resumes from the last checkpoint in the folder, with bit-identical results.
  bool resume = false;
  bool verify = true;  ///< false: resumes even if files or data have changed
  TrainerCallbacks callbacks = {};
  /// The processes that train together, including this one; null: only this one. Only rank 0
  /// accesses the folder and reports. All ranks must train the same thing; the result equals that
  /// of one process.
  Ranks* ranks = nullptr;
  /// Training examples that replace files in the settings. The run stores them, so that it can be
  /// resumed and evaluated without the originals; on resume they must be the same.
  std::span<const Examples> examples = {};
  bool report = true;  ///< call write_training_report() at the end, even if training was stopped
};

/// Trains a task with the process's number of threads: reads the data, learns the vocabulary,
/// builds the model and fills the folder. Settings and folder are checked before any data is read,
/// and nothing is written before training can begin. Throws a SettingsError or an Error.
TrainResult train(const TaskEntry& entry, const Settings& settings, const TrainRequest& request);
/// Writes the run's report with examples (apps/tasks/report.h), replacing the trainer's, which has
/// only curves. Reports the result on the test part if there is one. If writing fails, it prints a
/// message instead of throwing, since training succeeded.
void write_training_report(const TaskEntry& entry, const TrainRequest& request);

// --- cross-validation

/// The mean and the sample standard deviation (0 for one value).
struct Spread {
  double mean = 0, deviation = 0;
};
Spread mean_and_deviation(std::span<const double> values);

/// The result of cross-validation.
struct FoldsResult {
  bool finished = false;  ///< false: stopped on request; it can be resumed
  /// One object: the mean of each metric over the folds, by name; "deviation", their standard
  /// deviations (with n - 1); "folds", the metrics of each fold.
  std::string json;
};

/// Runs K-fold cross-validation of a task with "data.folds" (apps/tasks/labelled.h): K runs in the
/// folders fold-1 ... fold-K of request.folder, each trained and tested on other parts of the data,
/// without reports. The parts depend only on data.split_seed. On resume, finished folds are
/// skipped. Throws as train() does.
FoldsResult train_folds(const TaskEntry& entry, const Settings& settings, const TrainRequest& request);

/// Whether the settings request all folds of a cross-validation.
bool wants_all_folds(const Settings& settings);

/// Returns the folder with the settings of a run: the folder itself, or its first fold.
std::filesystem::path settings_folder(const std::filesystem::path& folder);

}  // namespace heed
