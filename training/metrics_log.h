#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "heed/training/progress.h"

namespace heed {

/// metrics.jsonl: one JSON object per progress record, appended as training goes on.
class MetricsLog {
 public:
  /// Continues a log whose first `bytes` bytes belong to the checkpoint; what a killed process wrote after
  /// them is cut off, since it will be written again. 0 starts anew. Throws when the file is shorter than
  /// that.
  MetricsLog(std::filesystem::path path, std::int64_t bytes);

  void append(const Progress& progress);
  /// Waits until all lines are on the disk, and returns the length of the file.
  std::int64_t sync() const;
  /// The records of the file.
  std::vector<Progress> records() const;

 private:
  std::filesystem::path path_;
  std::int64_t bytes_ = 0;
};

/// One line of the log, without the line end; and back. Throws for text that is no such line.
std::string metrics_line(const Progress& progress);
Progress parse_metrics_line(std::string_view line);

}  // namespace heed
