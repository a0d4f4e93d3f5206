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

// A comparison trains one task with several choices (attentions, settings) and seeds. Each training
// is a cell. Cells are independent: they can be trained in any order and by several processes. The
// table has a row for each choice, aggregated over its seeds.

namespace heed {

/// A setting that varies, with its values in the form of --set; for a range, its two ends.
struct ComparedSetting {
  std::string name;
  std::vector<std::string> values;
  bool is_range = false;
};

struct ComparisonPlan {
  const TaskEntry& entry;
  Settings base;                               ///< shared by all cells
  std::vector<std::string> attentions = {};    ///< empty: that of `base`
  std::vector<ComparedSetting> settings = {};  ///< the grid: all combinations
  std::vector<std::int64_t> seeds = {1};
  /// 0: all combinations; otherwise the number of random choices, drawn with the first seed, at
  /// most as many as there are. Numbers in a range are drawn uniformly, or log-uniformly if its ends
  /// differ by a factor of ten or more.
  std::int64_t draws = 0;
  bool halving = false;  ///< short runs select the choices to train fully (halving_steps)
};

/// The values of a choice that differ between choices, by name: "attention" or a setting.
using ChoiceValues = std::vector<std::pair<std::string, std::string>>;

/// One training of a comparison.
struct ComparisonCell {
  std::string choice;  ///< "fastformer, model.width=64"; the same for all seeds
  std::string name;    ///< of its folder; it depends on the choice and the seed alone
  std::int64_t seed = 1;
  Settings settings;
  std::string part = {};  ///< evaluated part; "": "test", or "valid" if there is no test part
  ChoiceValues values = {};
};

/// Returns all cells, choice by choice, in the order of the plan. Throws a SettingsError for invalid settings,
/// duplicates, a range without draws, seeds among the settings, attentions given both ways, and more than
/// 10,000 cells.
std::vector<ComparisonCell> plan_cells(const ComparisonPlan& plan);

/// Returns the cells with fewer steps and a proportionally shorter warm-up, evaluated on the
/// validation part. Throws a SettingsError if the comparison varies steps, or sets epochs.
std::vector<ComparisonCell> shortened(std::span<const ComparisonCell> cells, std::int64_t steps);
/// Returns how many of `choices` a round keeps: a third, and at least three.
std::size_t kept_choices(std::size_t choices);
/// Returns the steps of each round of successive halving (Jamieson and Talwalkar, AISTATS 2016)
/// except the last, which trains the remaining choices fully. Each round keeps a third of its
/// choices, until three are left.
std::vector<std::int64_t> halving_steps(std::size_t choices, std::int64_t steps);

/// The result of a cell.
struct CellResult {
  std::string settings;  ///< the cell's, as JSON
  std::string failure;   ///< why there is no result; "" if there is one
  /// The part of the data it was measured on: "test", or "valid" if there is no test part.
  std::string part;
  std::string data;  ///< digest of that part
  std::vector<Metric> metrics;
  /// The metrics on the validation part, by which one chooses without looking at the test part;
  /// empty if there is no such part.
  std::vector<Metric> validation;
  ExampleStatistics examples;
  std::int64_t parameters = 0, steps = 0;
  double step_gflops = 0;  ///< of the matrix products of one training step, forward and backward
  double training_seconds = 0, seconds_per_example = 0;
  std::int64_t peak_bytes = 0;  ///< peak of all tensors in training
};

/// Trains a cell in its folder, or resumes it, and evaluates it. Returns nothing if it was stopped, after
/// saving a checkpoint. Throws an Error if it fails.
std::optional<CellResult> run_cell(const TaskEntry& entry, const ComparisonCell& cell,
                                   const std::filesystem::path& folder, const TrainerCallbacks& callbacks);

/// Reads the result in a cell's folder; nothing if there is none or the cell failed. If the result or run
/// there has other settings than threads and device, throws an Error naming them, so that earlier work is
/// never overwritten.
std::optional<CellResult> read_result(const ComparisonCell& cell, const std::filesystem::path& folder);
/// Returns the indices of cells without a result; `results` receives the results of the others. Throws as
/// read_result() does, an Error for a finished cell that was trained on other data, and a SettingsError if
/// the data of a cell has no part to evaluate on.
std::vector<std::size_t> cells_to_train(const TaskEntry& entry, std::span<const ComparisonCell> cells,
                                        const std::filesystem::path& folder,
                                        std::vector<std::optional<CellResult>>& results);

/// Reads the result of a failed cell, or returns a failure saying that the cell left none.
CellResult read_failure(const std::filesystem::path& folder);
void write_result(const CellResult& result, const OpenFolder& cell);

/// Writes examples from memory to files in the comparison folder, and sets the settings to them.
/// Throws an Error if the folder has different examples.
void keep_examples(const TaskEntry& entry, std::span<const Examples> examples,
                   const std::filesystem::path& folder, Settings& settings);

/// Returns the result of each cell, training cells that have none; empty: training was stopped.
using CellTrainer = std::function<std::vector<std::optional<CellResult>>(std::span<const ComparisonCell>)>;
/// Returns a trainer of one cell after another in this process. A failing cell does not stop the others.
CellTrainer sequential_trainer(const TaskEntry& entry, const std::filesystem::path& folder,
                               const TrainerCallbacks& callbacks);

// --- the table (summary.cpp)

/// The difference between two choices, and its significance.
struct Difference {
  double value = 0;          ///< of the metric: this choice minus the first
  double low = 0, high = 0;  ///< the central 95 % of the resamples
  double p = 1;              ///< two-sided: the share of resamples on the other side of 0
  bool over_seeds = false;   ///< both choices have three seeds or more
  /// p < 0.05. Always false with fewer than three seeds, because seed variance cannot be estimated.
  bool is_significant() const { return over_seeds && p < 0.05; }
};

/// Computes the paired bootstrap (Koehn, EMNLP 2004) over examples and seeds: 2,000 times, the examples are
/// resampled with replacement, identically for both choices, and the seeds of each choice. The draws depend
/// only on the numbers of examples and seeds. Throws an Error if the examples do not correspond.
Difference paired_bootstrap(std::span<const ExampleStatistics> first,
                            std::span<const ExampleStatistics> second);
/// Returns the metric computed from sums of rows.
double combined_metric(const std::string& combine, std::span<const double> sums);

/// A row of the table: a choice over its seeds.
struct ComparisonRow {
  std::string choice;
  std::vector<CellResult> results;    ///< of the measured seeds
  std::vector<std::string> failures;  ///< "seed 2: out of memory"
  std::int64_t missing = 0;           ///< cells that are not finished
  /// The difference from the first row; none for the first row and if there is nothing to compare.
  std::optional<Difference> difference;
  bool measured_elsewhere = false;  ///< evaluated on other examples than the first row
  ChoiceValues values = {};
};

/// Returns the rows in the order of the cells. `results[i]` belongs to `cells[i]` and is empty if
/// it was not trained.
std::vector<ComparisonRow> comparison_rows(std::span<const ComparisonCell> cells,
                                           std::span<const std::optional<CellResult>> results);

/// Returns the table, best first (best_choices()): a column for each thing that varies, metrics with their
/// spread, the difference from the first row of the plan, and costs. Below it are notes and, if several things
/// vary, how much each matters.
std::string comparison_text(std::span<const ComparisonRow> rows);
std::string comparison_markdown(std::span<const ComparisonRow> rows);
/// Returns the measured choices, best first: by the first metric on the validation part or, without one, on
/// the part that was measured. Of equal ones the next metric decides.
std::vector<std::string> best_choices(std::span<const ComparisonRow> rows);
/// Returns the indices of the cells, best first: by their choice, then by their own metrics. Cells
/// without a result come last.
std::vector<std::size_t> best_cells(std::span<const ComparisonCell> cells,
                                    std::span<const ComparisonRow> rows,
                                    std::span<const std::optional<CellResult>> results);
/// Returns a line of JSON for each choice, with all figures.
std::string comparison_json_lines(std::span<const ComparisonRow> rows);

/// A comparison with its cells and results.
struct Comparison {
  std::vector<ComparisonCell> cells;  ///< best first; with --halving, the fully trained ones
  /// In the order of the plan; with --halving, the fully trained choices, then those that failed
  /// before.
  std::vector<ComparisonRow> rows = {};
  bool finished = false;  ///< no cell was stopped
};
/// Trains the cells of the plan in the folder, and writes table.txt, table.md, table.jsonl and report.html
/// there, or nothing if a round of a search was stopped. Throws a SettingsError for an impossible cell before
/// training any.
Comparison compare(const ComparisonPlan& plan, const std::filesystem::path& folder,
                   const CellTrainer& train_cells, const std::function<void(std::string_view)>& say);

/// Returns a self-contained page for a comparison: the tables, quality against each number that varies and
/// against cost, and the learning curves of all choices. `progress[i]` belongs to one seed of row i, or is empty.
std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            std::span<const std::vector<Progress>> progress);

}  // namespace heed
