#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/learner.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/core/ranks.h"
#include "heed/training/trainer.h"

// Training: settings put together from what a user says, and the one function that trains.
//
//   const heed::TaskKind& kind = heed::task_kind("classify");
//   const heed::Examples examples[] = {{"train", {texts, labels}}};
//   const heed::Settings settings = heed::training_settings(kind, {.own_data = true});
//   heed::train(kind, settings, {.folder = "runs/mine", .examples = examples});

namespace heed {

// --- settings

/// One setting as a user gives it.
struct GivenSetting {
  std::string name;                    ///< "training.steps", or an option of an attention
  std::string value;                   ///< JSON, or else a plain text
  std::string origin = "the program";  ///< for messages: "--steps"
};

/// All that a user says of a training.
struct GivenSettings {
  bool own_data = false;                    ///< examples come from memory; else the settings say
  std::string config = {};                  ///< a JSON file of settings; "": none
  AttentionNames attention = {};            ///< laid over it
  std::vector<GivenSetting> settings = {};  ///< laid over that, in this order
  std::filesystem::path resumed = {};       ///< the run that goes on; empty: a new one begins
  bool verify = true;                       ///< as in TrainRequest
};

/// The settings in a JSON object, one by one; its names are dotted, or objects are nested, or both. Throws a
/// SettingsError for a text that is not such an object.
std::vector<GivenSetting> given_settings(const TaskKind& kind, std::string_view json,
                                         const std::string& origin);

/// Defaults, or the settings of a run that goes on, < the model of training.from < config < attention <
/// settings. The defaults are those for the user's data where the settings name some. `notes` gets what is
/// worth telling about the attentions; null: nobody asks. Throws a SettingsError.
Settings training_settings(const TaskKind& kind, const GivenSettings& given,
                           std::vector<std::string>* notes = nullptr);

// --- training

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
  bool report = true;  ///< write_report_of() at the end, also where training was stopped
};

/// Trains a task, with the number of threads that the process has: reads the data, learns the vocabulary,
/// builds the model, fills the folder. Settings and folder are checked before any data is read, and nothing
/// is written before training can begin. Throws a SettingsError or an Error.
TrainResult train(const TaskKind& kind, const Settings& settings, const TrainRequest& request);
/// Writes the run's report with examples (apps/tasks/report.h) in place of the trainer's, which has curves
/// alone, and says what the run came to on its test part, where it has one. Says so where the report cannot
/// be made: the training has succeeded.
void write_report_of(const TaskKind& kind, const TrainRequest& request);

// --- cross-validation

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

/// K-fold cross-validation of a task with "data.folds" (apps/tasks/labelled.h): K runs in the folders fold-1
/// ... fold-K of request.folder, each trained and tested on other parts of the data, without reports. Which
/// these are follows from data.split_seed alone. Resumed, folds that are finished are not trained again.
/// Throws as train() does.
FoldsResult train_folds(const TaskKind& kind, const Settings& settings, const TrainRequest& request);

/// Whether the settings ask for all folds of a cross-validation.
bool asks_for_all_folds(const Settings& settings);

/// Where the settings of a run stand: in the folder itself, or where it holds folds in that of the first.
std::filesystem::path folder_of_settings(const std::filesystem::path& folder);

}  // namespace heed
