#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "heed/apps/tasks/task.h"

namespace heed {

/// Returns the metrics as text: "accuracy 0.934, loss 0.17827".
std::string metrics_text(const Measurement& measurement);

// The report of a run (docs/report.md): one file of HTML that works offline.

struct ReportOptions {
  /// A name for find_device(); "": the device in the run's settings.
  std::string device = {};
  bool verify = true;  ///< false: also accept files changed after they were written
  /// Of a task that is not in the list; null: as recorded in the run.
  const TaskEntry* entry = nullptr;
  /// Receives the evaluation on the page: of the test part if the run has one, otherwise of the
  /// validation part for a task with classes.
  std::function<void(std::string_view part, const Measurement& measurement)> measured = {};
};

/// Returns the page about a run: curves; settings, with non-defaults first; the result on the test
/// part; mistakes and confusion matrix for a task with labels; attention maps, clusters and weights
/// of a few examples. A part that
/// cannot be made, for example because its data is gone, states the reason in its place. Throws an
/// Error if there is no run.
std::string run_report(const std::filesystem::path& folder, const ReportOptions& options = {});
/// Returns the parts of the page that need only the run's files, as JSON (apps/report/report.h): an
/// object with "name", "task", "summary", "curves" and "settings", a list of sections. Throws as
/// run_report() does.
std::string recorded_parts(const std::filesystem::path& folder, const ReportOptions& options = {});
/// Returns the parts of the page that need the model, as a JSON list of sections.
std::string model_parts(const std::filesystem::path& folder, const ReportOptions& options = {});
/// Returns the "examples" section of a capture as JSON, limited to the size that a report draws.
std::string report_maps(const CaptureFile& capture);
/// Writes the page to report.html in the run, and returns its path. It replaces the page with
/// curves only that the trainer writes (page::write_while_training). Throws as run_report() does.
std::filesystem::path write_run_report(const std::filesystem::path& folder,
                                       const ReportOptions& options = {});

/// Returns a page that compares several runs: their results, the settings in which they differ, and
/// overlaid curves. Throws an Error if a folder is not a run.
std::string runs_report(std::span<const std::filesystem::path> folders, const ReportOptions& options = {});

}  // namespace heed
