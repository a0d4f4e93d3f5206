#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "heed/apps/tasks/learner.h"

namespace heed {

/// "accuracy 0.934, loss 0.17827"
std::string metrics_text(const Measurement& measurement);

// The report of a run (docs/report.md): one file of HTML that works offline.

struct ReportOptions {
  std::string device = {};         ///< as find_device() has it; "": the one that the run names
  bool verify = true;              ///< false: files that were changed after they were written are used anyway
  const TaskKind* kind = nullptr;  ///< of a task that is not in the list; null: the run says
  /// Gets what the page measured: the test part of a run that has one, else the validation part of a task
  /// with classes.
  std::function<void(std::string_view part, const Measurement& measurement)> measured = {};
};

/// A page about a run: curves, settings (those that differ from the defaults first), and what its model does:
/// what it comes to on the test part, mistakes and confusion matrix of a task with labels, attention maps,
/// clusters and weights of a few examples, histograms of the attention weights before and after training. A
/// part that cannot be made (data that is no longer there, say) says why in its place. Throws an Error when
/// there is no run.
std::string run_report(const std::filesystem::path& folder, const ReportOptions& options = {});
/// The parts of that page, as JSON (apps/report/report.h). What the run's files tell takes no model: an
/// object with "name", "task", "summary", "curves" and "settings", a list of sections. Throws as run_report()
/// does.
std::string recorded_parts(const std::filesystem::path& folder, const ReportOptions& options = {});
/// What its model does: the other sections, a list.
std::string model_parts(const std::filesystem::path& folder, const ReportOptions& options = {});
/// The "examples" of a capture, as large as a report has them.
std::string report_maps(const CaptureFile& capture);
/// Writes that page into the run as report.html, in place of the one with curves only that the trainer writes
/// while it trains (page::write_while_training), and returns its path. Throws as run_report() does.
std::filesystem::path write_run_report(const std::filesystem::path& folder,
                                       const ReportOptions& options = {});

/// A page about several runs, side by side: what they came to, the settings in which they differ, and their
/// curves over each other. Throws an Error when one is no run.
std::string runs_report(std::span<const std::filesystem::path> folders, const ReportOptions& options = {});

}  // namespace heed
