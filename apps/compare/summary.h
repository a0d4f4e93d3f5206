#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/compare/comparison.h"
#include "heed/training/progress.h"

namespace heed {

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

/// The cells of the table, header first.
std::vector<std::vector<std::string>> comparison_table(std::span<const ComparisonRow> rows);
/// Notes below the table.
std::string comparison_notes(std::span<const ComparisonRow> rows);
/// The table: metrics with their spread, the difference from the first row, and what a choice costs.
std::string comparison_text(std::span<const ComparisonRow> rows);
std::string comparison_markdown(std::span<const ComparisonRow> rows);
/// A line of JSON for each choice, with all figures.
std::string comparison_json_lines(std::span<const ComparisonRow> rows);

/// A self-contained page for a comparison: the table, quality against cost, and the learning curves of all
/// choices. `progress[i]` is that of one seed of row i, or empty.
std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            std::span<const std::vector<Progress>> progress);

}  // namespace heed
