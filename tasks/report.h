#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "heed/tasks/learner.h"

// The report of a run (docs/report.md): one file of HTML that works offline.

namespace heed {

struct ReportOptions {
  std::string device = {};         ///< as find_device() has it; "": the one that the run names
  bool verify = true;              ///< false: files that were changed after they were written are used anyway
  const TaskKind* kind = nullptr;  ///< of a task that is not in the list; null: the run says
};

/// A page about a run: curves, settings (those that differ from the defaults first), and what its model does: mistakes
/// and confusion matrix of a task with labels, attention maps, clusters and weights of a few examples, histograms of the
/// attention weights before and after training. A part that cannot be made (data that is no longer there, say) says why in
/// its place. Throws an Error when there is no run.
std::string run_report(const std::filesystem::path& folder, const ReportOptions& options = {});

/// A page about several runs, side by side: what they came to, the settings in which they differ, and their curves over
/// each other. Throws an Error when one is no run.
std::string runs_report(std::span<const std::filesystem::path> folders, const ReportOptions& options = {});

}  // namespace heed
