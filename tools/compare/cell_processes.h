#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "heed/experiments/comparison.h"

namespace heed::programs {

/// Trains what has no result yet, `jobs` cells at a time, each in a process of its own that writes its progress to
/// log.txt in the cell's folder, and returns all results: empty for cells that were interrupted. A cell that fails, or
/// whose process is killed, has its reason as a result. Call it before any device is opened.
std::vector<std::optional<CellResult>> run_cells(const TaskKind& kind, std::span<const ComparisonCell> cells,
                                                 const std::filesystem::path& folder, int jobs,
                                                 const std::function<bool()>& stop_requested);

}  // namespace heed::programs
