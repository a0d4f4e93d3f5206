#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/apps/tasks/train.h"
#include "heed/base/open_folder.h"

// A comparison trains one task under several choices (attentions, settings) and seeds, one cell for each.
// Cells are independent, so they can be trained in any order and by several processes.

namespace heed {

/// A setting that varies, with its values as --set takes them.
struct ComparedSetting {
  std::string name;
  std::vector<std::string> values;
};

struct ComparisonPlan {
  const TaskKind& kind;
  Settings base;                               ///< shared by all cells
  std::vector<std::string> attentions = {};    ///< empty: that of `base`
  std::vector<ComparedSetting> settings = {};  ///< the grid: all combinations
  std::vector<std::int64_t> seeds = {1};
};

/// One training of a comparison.
struct ComparisonCell {
  std::string choice;  ///< "fastformer, model.width=64"; the same for all seeds
  std::string name;    ///< of its folder; unique in the plan
  std::int64_t seed = 1;
  Settings settings;
};

/// All cells, choice by choice, in the order of the plan. Throws a SettingsError for invalid settings,
/// duplicate names or values, seeds among the settings, attentions given both ways, and more than 10,000
/// cells.
std::vector<ComparisonCell> cells_of(const ComparisonPlan& plan);

/// The result of a cell.
struct CellResult {
  std::string settings;  ///< the cell's, as JSON
  std::string failure;   ///< why there is no result; "" if there is one
  /// The part of the data it was measured on: "test", or "valid" if there is no test part.
  std::string part;
  std::string data;  ///< digest of that part
  std::vector<Metric> metrics;
  ExampleStatistics examples;
  std::int64_t parameters = 0, steps = 0;
  double step_gflops = 0;  ///< of the matrix products of one training step, forward and backward
  double training_seconds = 0, seconds_per_example = 0;
  std::int64_t peak_bytes = 0;  ///< peak of all tensors in training
};

/// Trains a cell in its folder, or resumes an interrupted one, and measures it. Returns nothing if
/// `callbacks.stop_requested` stopped it, after saving a checkpoint. Throws an Error if it fails.
std::optional<CellResult> run_cell(const TaskKind& kind, const ComparisonCell& cell,
                                   const std::filesystem::path& folder, const TrainerCallbacks& callbacks);

/// The result in a cell's folder; nothing if there is none or the cell failed. Throws an Error that names the
/// difference if the result or run there was made with other settings, so that earlier work is never
/// overwritten. Threads and device may differ.
std::optional<CellResult> read_result(const ComparisonCell& cell, const std::filesystem::path& folder);
/// The data of cells, read once for all that share it.
class ComparedData {
 public:
  explicit ComparedData(const TaskKind& kind) : kind_(kind) {}
  /// Throws a SettingsError if the data of a cell has no part to measure on, and whatever reading it throws.
  void check_measurable(const ComparisonCell& cell);
  /// Throws an Error that names the changed part if a finished cell was trained on other data.
  void check_same(const ComparisonCell& cell, const std::filesystem::path& folder);

 private:
  std::map<std::string, std::string> digests(const ComparisonCell& cell);

  const TaskKind& kind_;
  // By the settings that determine the data.
  std::map<std::string, std::map<std::string, std::string>> known_;
};

/// Throws an Error for a folder that contains anything but cells and tables of a comparison.
void check_comparison_folder(const std::filesystem::path& folder);
/// The result that a failed cell left, or one that says it left none.
CellResult read_failure(const std::filesystem::path& folder);
void write_result(const CellResult& result, const OpenFolder& cell);

}  // namespace heed
