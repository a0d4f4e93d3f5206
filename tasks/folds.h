#pragma once

#include <string>

#include "heed/tasks/run.h"

namespace heed {

/// What cross-validation found.
struct FoldsResult {
  bool finished = false;  ///< false: stopped on request; resuming goes on
  /// One object: the mean of each metric over the folds, by name; "deviation", the standard deviations of the same
  /// (with n - 1 beneath); "folds", the metrics of each fold.
  std::string json;
};

/// K-fold cross-validation of a task with "data.folds" (tasks/labelled.h): K runs in the folders fold-1 ... fold-K of
/// request.folder, each trained and tested on other parts of the data. Which these are follows from data.split_seed
/// alone. Resumed, folds that are finished are not trained again. Throws as train_run does.
FoldsResult train_folds(const TaskKind& kind, const Settings& settings, const TrainRequest& request);

/// Where the settings of a run stand: in the folder itself, or where it holds folds in that of the first.
std::filesystem::path folder_of_settings(const std::filesystem::path& folder);

}  // namespace heed
