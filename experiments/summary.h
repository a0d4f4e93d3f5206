#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/experiments/comparison.h"
#include "heed/training/progress.h"

namespace heed {

/// Whether two choices differ by more than chance, on the same examples.
struct Difference {
  double value = 0;          ///< of the metric: this choice's minus the first one's
  double low = 0, high = 0;  ///< the middle 95 % of the resamples
  double p = 1;              ///< the share of resamples on the other side of 0, on both sides
};

/// Paired bootstrap (Koehn, EMNLP 2004): the examples are drawn again with replacement, 2,000 times, the same
/// ones for both choices; `first` and `second` hold the statistics of each seed. Draws depend on the number
/// of examples alone. Throws an Error when the examples do not correspond.
Difference paired_bootstrap(std::span<const ExampleStatistics> first,
                            std::span<const ExampleStatistics> second);
/// The metric that sums of rows give. Throws an Error for a way to combine that is not known.
double combined_metric(const std::string& combine, std::span<const double> sums);

/// A row of the table: a choice over its seeds.
struct ComparisonRow {
  std::string choice;
  std::vector<CellResult> results;    ///< of the seeds that were measured
  std::vector<std::string> failures;  ///< "seed 2: out of memory"
  std::int64_t missing = 0;           ///< cells that were not trained to their end yet
  /// From the first row; none for itself and where there is nothing to compare.
  std::optional<Difference> difference;
  bool measured_elsewhere = false;  ///< on other examples than the first row
};

/// Mean and standard deviation (of a sample; 0 for one value).
struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread_of(std::span<const double> values);

/// The rows in the order of the cells; `results[i]` belongs to `cells[i]`, and is empty where it was not
/// trained.
std::vector<ComparisonRow> comparison_rows(std::span<const ComparisonCell> cells,
                                           std::span<const std::optional<CellResult>> results);

/// The cells of the table, its head first.
std::vector<std::vector<std::string>> comparison_table(std::span<const ComparisonRow> rows);
/// What the table cannot show in its cells.
std::string comparison_notes(std::span<const ComparisonRow> rows);
/// The table: metrics with their spread, the difference from the first row, and what a choice costs.
std::string comparison_text(std::span<const ComparisonRow> rows);
std::string comparison_markdown(std::span<const ComparisonRow> rows);
/// One JSON object a line for each choice, with all figures.
std::string comparison_json_lines(std::span<const ComparisonRow> rows);

/// The progress of a cell's run, from its folder; empty where there is none. Lines that cannot be read are
/// left out.
std::vector<Progress> progress_of_cell(const std::filesystem::path& folder);

/// A page for a comparison, in one file that needs nothing else: the table, quality against cost, and the
/// learning curves of all choices over each other. `progress[i]` is that of one seed of row i, or empty.
std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            std::span<const std::vector<Progress>> progress);

}  // namespace heed
