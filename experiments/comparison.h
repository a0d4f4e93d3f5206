#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/open_folder.h"
#include "heed/tasks/run.h"

// A comparison trains one task with one recipe under several choices (attentions, settings) and seeds: a cell
// for each choice and seed. Cells know nothing of each other, so that they can be trained in any order and by
// several processes.

namespace heed {

/// A setting that varies, and its values as --set writes them.
struct ComparedSetting {
  std::string name;
  std::vector<std::string> values;
};

struct ComparisonPlan {
  const TaskKind& kind;
  Settings base;                               ///< what all cells have in common
  std::vector<std::string> attentions = {};    ///< empty: what `base` says
  std::vector<ComparedSetting> settings = {};  ///< the grid: every value with every other
  std::vector<std::int64_t> seeds = {1};
};

/// One training of a comparison.
struct ComparisonCell {
  std::string choice;  ///< what it tries: "fastformer, model.width=64"; the same for all its seeds
  std::string name;    ///< of its folder; no two cells of a plan share it
  std::int64_t seed = 1;
  Settings settings;
};

/// All cells, choice by choice, in the order of the plan. Throws a SettingsError for what no setting allows,
/// for a name or value that stands twice, for seeds among the settings, for an attention beside those of the
/// plan that takes their place, and for a grid of more than 10,000 cells.
std::vector<ComparisonCell> cells_of(const ComparisonPlan& plan);

/// What a cell came to.
struct CellResult {
  std::string settings;  ///< the cell's, as JSON
  std::string failure;   ///< why there is no result; "": there is one
  /// Of the data, on which it was measured: "test", or "valid" where there is no test part.
  std::string part;
  std::string data;  ///< the digest of that part
  std::vector<Metric> metrics;
  ExampleStatistics examples;
  std::int64_t parameters = 0, steps = 0;
  double step_gflops = 0;  ///< of the matrix products of one training step, forward and backward
  double training_seconds = 0, seconds_per_example = 0;
  std::int64_t peak_bytes = 0;  ///< the most that tensors took while it trained
};

/// Trains a cell in its folder, or goes on where an earlier process was interrupted, and measures it. Nothing
/// when `callbacks.stop_requested` asked for an end; a checkpoint was saved then. Throws an Error for what
/// fails.
std::optional<CellResult> run_cell(const TaskKind& kind, const ComparisonCell& cell,
                                   const std::filesystem::path& folder, const TrainerCallbacks& callbacks);

/// The result in a cell's folder; nothing when there is none yet, and when it failed. Throws an Error that
/// names the difference when what lies there, a result or a run, was made with other settings: what an
/// earlier comparison trained and measured is kept as it is. Threads and device may differ.
std::optional<CellResult> read_result(const ComparisonCell& cell, const std::filesystem::path& folder);
/// What data cells are of, read once for all that share it.
class ComparedData {
 public:
  explicit ComparedData(const TaskKind& kind) : kind_(kind) {}
  /// Throws a SettingsError where the data of a cell has nothing to measure on, and what reading it throws.
  void check_measurable(const ComparisonCell& cell);
  /// Throws an Error that names what has changed where the run of a cell that is done was made from other
  /// data.
  void check_same(const ComparisonCell& cell, const std::filesystem::path& folder);

 private:
  std::map<std::string, std::string> digests(const ComparisonCell& cell);

  const TaskKind& kind_;
  // By the settings that say what the data is.
  std::map<std::string, std::map<std::string, std::string>> known_;
};

/// Throws an Error for a folder that has anything in it but cells and tables of a comparison.
void check_comparison_folder(const std::filesystem::path& folder);
/// The result that a failed cell has left, or one that says that it has left none.
CellResult read_failure(const std::filesystem::path& folder);
void write_result(const CellResult& result, const OpenFolder& cell);

}  // namespace heed
