#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/example_files.h"
#include "heed/apps/tasks/recipe.h"
#include "heed/apps/tasks/run.h"

// What training needs beside train_run() (apps/tasks/run.h): settings put together from what a user says, and
// examples that are in memory.
//
//   const heed::TaskKind& kind = heed::task_kind("classify");
//   const heed::Examples examples[] = {{"train", {texts, labels}}};
//   const heed::Settings settings = heed::training_settings(kind, {.own_data = true});
//   heed::train(kind, settings, {.folder = "runs/mine", .examples = examples});

namespace heed {

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
/// settings. `say` gets what is worth telling about the attentions. Throws a SettingsError.
Settings training_settings(const TaskKind& kind, const GivenSettings& given,
                           const std::function<void(const std::string&)>& say = {});

/// train_run(), and then the run's report with examples (apps/tasks/report.h), also where training was stopped.
TrainResult train(const TaskKind& kind, const Settings& settings, const TrainRequest& request);
/// Writes that report in place of the trainer's, which has curves alone, and says what the run came to on its
/// test part, where it has one. Says so where the report cannot be made: the training has succeeded.
void write_report_of(const TaskKind& kind, const TrainRequest& request);

}  // namespace heed
