#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/apps/tasks/train.h"
#include "heed/base/open_folder.h"
#include "heed/training/progress.h"

// A comparison trains one task under several choices (attentions, settings) and seeds, one cell for each.
// Cells are independent, so they can be trained in any order and by several processes. A table has a row for
// each choice, over its seeds.

namespace heed {

/// A setting that varies, with its values as --set takes them; of a range its two ends.
struct ComparedSetting {
  std::string name;
  std::vector<std::string> values;
  bool is_range = false;
};

struct ComparisonPlan {
  const TaskKind& kind;
  Settings base;                               ///< shared by all cells
  std::vector<std::string> attentions = {};    ///< empty: that of `base`
  std::vector<ComparedSetting> settings = {};  ///< the grid: all combinations
  std::vector<std::int64_t> seeds = {1};
  /// 0: all combinations; else so many, drawn at random with the first seed. From a range numbers are drawn
  /// evenly, or where its ends are ten times apart or more, their logarithms.
  std::int64_t draws = 0;
  bool halving = false;  ///< short trainings choose which choices are trained whole (steps_of_rounds)
};

/// One training of a comparison.
struct ComparisonCell {
  std::string choice;  ///< "fastformer, model.width=64"; the same for all seeds
  std::string name;    ///< of its folder; unique in the plan
  std::int64_t seed = 1;
  Settings settings;
  /// Of each setting that varies its value in this choice, the attention first where it does.
  std::vector<std::pair<std::string, std::string>> varied = {};
  std::string part = {};  ///< to measure on; "": "test", or "valid" if there is no test part
};

/// All cells, choice by choice, in the order of the plan; of those drawn as many as there are different ones.
/// Throws a SettingsError for invalid settings, duplicate names or values, a range without draws, seeds among
/// the settings, attentions given both ways, and more than 10,000 cells.
std::vector<ComparisonCell> cells_of(const ComparisonPlan& plan);

/// The cells as trainings of fewer steps, of which the warm-up takes its share, measured on the validation
/// part. Throws a SettingsError where steps are compared, or epochs given.
std::vector<ComparisonCell> shortened(std::span<const ComparisonCell> cells, std::int64_t steps);
/// How many of so many choices a round keeps: a third, and at least three.
std::size_t kept_of(std::size_t choices);
/// Successive halving (Jamieson and Talwalkar, AISTATS 2016): the steps of each round but the last, in which
/// the choices that are left are trained whole. Each keeps a third of its choices, until three are left.
std::vector<std::int64_t> steps_of_rounds(std::size_t choices, std::int64_t steps);

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

/// The cells that have no result yet; `results` gets those of the others. Throws what read_result() and
/// ComparedData throw.
std::vector<std::size_t> cells_to_train(const TaskKind& kind, std::span<const ComparisonCell> cells,
                                        const std::filesystem::path& folder,
                                        std::vector<std::optional<CellResult>>& results);

/// Throws an Error for a folder that contains anything but cells and tables of a comparison.
void check_comparison_folder(const std::filesystem::path& folder);
/// The result that a failed cell left, or one that says it left none.
CellResult read_failure(const std::filesystem::path& folder);
void write_result(const CellResult& result, const OpenFolder& cell);

/// Examples in memory become files in the folder of a comparison, which the settings then name. Throws an
/// Error where it has others.
void keep_examples(const TaskKind& kind, std::span<const Examples> examples,
                   const std::filesystem::path& folder, Settings& settings);

/// Gives the result of each cell, and trains those that have none; empty: it was stopped before.
using CellTrainer = std::function<std::vector<std::optional<CellResult>>(std::span<const ComparisonCell>)>;
/// Trains in this process, one after the other. A cell that fails stops no other.
CellTrainer cells_in_turn(const TaskKind& kind, const std::filesystem::path& folder,
                          const TrainerCallbacks& callbacks);

// --- the table (summary.cpp)

/// Whether two choices differ by more than chance.
struct Difference {
  double value = 0;          ///< of the metric: this choice minus the first
  double low = 0, high = 0;  ///< the central 95 % of the resamples
  double p = 1;              ///< two-sided: the share of resamples on the other side of 0
  bool over_seeds = false;   ///< both choices have three seeds or more
  /// Below 5 %. Never with fewer seeds: how much a seed matters is then unknown.
  bool is_significant() const { return over_seeds && p < 0.05; }
};

/// Paired bootstrap (Koehn, EMNLP 2004), over examples and seeds: 2,000 times the examples are resampled with
/// replacement, the same ones for both choices, and the seeds of each choice; `first` and `second` hold the
/// statistics of each seed. The draws depend only on the numbers of examples and seeds. Throws an Error if
/// the examples do not correspond.
Difference paired_bootstrap(std::span<const ExampleStatistics> first,
                            std::span<const ExampleStatistics> second);
/// The metric computed from sums of rows. Throws an Error for an unknown way to combine.
double combined_metric(const std::string& combine, std::span<const double> sums);

/// A row of the table: a choice over its seeds.
struct ComparisonRow {
  std::string choice;
  std::vector<CellResult> results;    ///< of the measured seeds
  std::vector<std::string> failures;  ///< "seed 2: out of memory"
  std::int64_t missing = 0;           ///< cells that are not finished
  /// From the first row; none for the first row and if there is nothing to compare.
  std::optional<Difference> difference;
  bool measured_elsewhere = false;  ///< on other examples than the first row
};

/// The rows in the order of the cells; `results[i]` belongs to `cells[i]` and is empty if it was not trained.
std::vector<ComparisonRow> comparison_rows(std::span<const ComparisonCell> cells,
                                           std::span<const std::optional<CellResult>> results);

/// The table: metrics with their spread, the difference from the first row, and what a choice costs; notes
/// below.
std::string comparison_text(std::span<const ComparisonRow> rows);
std::string comparison_markdown(std::span<const ComparisonRow> rows);
/// The choices that a round keeps: those with the best first metric, best first.
std::vector<std::string> best_choices(std::span<const ComparisonRow> rows);
/// Of a comparison in which two settings or more vary: for each setting the mean of the first metric at each
/// of its values, or in each third of its range, and which share of the variance between choices lies between
/// these. A line each, the largest share first; "" where too little varies.
std::string what_mattered(std::span<const ComparisonCell> cells, std::span<const ComparisonRow> rows);
/// A line of JSON for each choice, with all figures.
std::string comparison_json_lines(std::span<const ComparisonRow> rows);

/// A whole comparison.
struct Comparison {
  std::vector<ComparisonCell> cells;  ///< of --halving those that were trained whole, the best choice first
  std::vector<ComparisonRow> rows = {};
  std::string mattered = {};  ///< what_mattered(); of --halving in the first round, which has all choices
  bool finished = false;      ///< no cell was stopped

  std::string text() const { return comparison_text(rows) + mattered; }
  std::string markdown() const { return comparison_markdown(rows) + mattered; }
};
/// Trains the cells of the plan in the folder, and writes table.txt, table.md, table.jsonl and report.html
/// there; where a round of a search was stopped nothing. Throws a SettingsError for a cell that cannot be
/// trained before any is.
Comparison compare(const ComparisonPlan& plan, const std::filesystem::path& folder,
                   const CellTrainer& train_cells, const std::function<void(std::string_view)>& say);

/// A self-contained page for a comparison: the table, `notes` below it, quality against cost, and the
/// learning curves of all choices. `progress[i]` is that of one seed of row i, or empty.
std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            const std::string& notes, std::span<const std::vector<Progress>> progress);

}  // namespace heed
