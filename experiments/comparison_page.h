#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/experiments/summary.h"
#include "heed/training/progress.h"

namespace heed {

/// The progress of a cell's run, from its folder; empty where there is none. Lines that cannot be read are left out.
std::vector<Progress> progress_of_cell(const std::filesystem::path& folder);

/// A page for a comparison, in one file that needs nothing else: the table, quality against cost, and the learning
/// curves of all choices over each other. `progress[i]` is that of one seed of row i, or empty.
std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            std::span<const std::vector<Progress>> progress);

}  // namespace heed
