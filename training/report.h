#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/training/progress.h"

// What a report says of how training went. What it says of the model (examples, mistakes) needs the task:
// tasks/report.h.

namespace heed {

/// The records of a run, under a name that tells it from others.
struct RunRecords {
  std::string name;
  std::vector<Progress> records;
};

/// A drawing for each thing that was recorded: loss and its parts, metrics, learning rate, gradient norm, throughput,
/// memory. Of several runs, which are told apart by colour, the curves lie over each other.
std::string curves_html(std::span<const RunRecords> runs);
/// How far a run has come, and its best evaluation.
std::string summary_html(std::span<const Progress> records);

/// A page with the curves of a run and its configuration. All in one file, drawings as inline SVG: it opens without a
/// network.
std::string report_html(std::span<const Progress> records, std::string_view configuration);

}  // namespace heed
