#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/open_folder.h"
#include "heed/training/progress.h"

namespace heed {

/// metrics.jsonl: one JSON object per progress record, appended as training goes on.
///
/// Nothing that happens to this file stops a training: what cannot be read or written is said in a remark.
class MetricsLog {
 public:
  /// Continues the log of a run, whose first `bytes` bytes belong to the checkpoint; what a killed process wrote after
  /// them is cut off, since it will be written again. 0 starts anew. Lines that are no records are named in a
  /// remark; they stay in the file.
  MetricsLog(OpenFolder run, std::int64_t bytes, std::function<void(std::string_view)> remark = {});

  void append(const Progress& progress);
  /// Waits until all lines are on the disk, and returns the length of the file.
  std::int64_t sync();
  /// The records of the file. Lines that are none are left out.
  std::vector<Progress> records() const;

 private:
  void open(std::int64_t bytes);
  void check_lines() const;
  void say_failure(std::string_view reason);

  OpenFolder run_;
  std::filesystem::path path_;  // of the file, for messages
  std::function<void(std::string_view)> remark_;
  std::int64_t bytes_ = 0;
  bool is_open_ = false;         // false: what the file holds is not known, and nothing is written to it
  bool needs_line_end_ = false;  // before what is appended
  bool is_torn_ = false;         // a failed write may have left something after bytes_
  bool failure_is_said_ = false;
};

/// The records in a file of such lines; those that are none are left out. Empty where there is no file.
std::vector<Progress> read_metrics(const std::filesystem::path& path);

/// One line of the log, without the line end; and back. Throws for text that is no such line.
std::string metrics_line(const Progress& progress);
Progress parse_metrics_line(std::string_view line);

}  // namespace heed
