#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/open_folder.h"

namespace heed {

/// How far training has come. Records with metrics are evaluations; the others are taken every few steps.
struct Progress {
  std::int64_t step = 0;   ///< steps of the optimizer done
  std::int64_t steps = 0;  ///< and to be done in all
  std::int64_t epoch = 0;  ///< passes over the data that are complete
  double loss = 0;         ///< mean per token since the last record
  double learning_rate = 0;
  double gradient_norm = 0;  ///< of the last step, before clipping
  double tokens_per_second = 0;
  double elapsed_seconds = 0;  ///< of all sessions of the run
  double seconds_left = 0;
  /// The most that tensors took so far on the device of the model; 0: not known.
  std::int64_t memory_bytes = 0;
  /// Auxiliary losses, mean since the last record.
  std::vector<std::pair<std::string, double>> auxiliary = {};
  std::vector<std::pair<std::string, double>> metrics = {};  ///< of an evaluation
  bool is_best = false;                                      ///< the evaluation is the best so far
  std::string unit = "tokens";                               ///< what tokens_per_second counts

  bool is_evaluation() const { return !metrics.empty(); }
};

/// "step 1200/10000  epoch 3  loss 2.314  rate 5.0e-04  norm 0.83  12.3k tokens/s  4:05 left"; an evaluation
/// lists its metrics. With `columns` > 0, what matters less is left out until the line fits; the time left is
/// the last to go.
std::string progress_text(const Progress& progress, int columns = 0);
/// "4:05", "1:02:03" or "2d 03:04:05".
std::string duration_text(double seconds);

/// Renders progress on a stream that the program chooses: on a terminal one line that is overwritten, with a
/// bar; elsewhere a line per record.
class ProgressPrinter {
 public:
  struct Style {
    bool overwrite = false;  ///< the stream is a terminal
    bool color = false;
    int columns = 80;
  };
  /// What suits a file descriptor: terminal or not, its width, and no colour when
  /// NO_COLOR is set or TERM is "dumb".
  static Style style_of(int descriptor);

  ProgressPrinter(std::ostream& out, Style style) : out_(out), style_(style) {}
  void show(const Progress& progress);
  /// Lines of their own, above the progress line. What would steer a terminal is shown, not
  /// obeyed (see unicode::message_line).
  void message(std::string_view text);
  /// Leaves the cursor on a fresh line.
  void finish();

 private:
  void clear_line();
  void line(std::string_view text);
  std::ostream& out_;
  Style style_;
  bool line_is_open_ = false;
};

/// metrics.jsonl: one JSON object per progress record, appended as training goes on.
///
/// Nothing that happens to this file stops a training: what cannot be read or written is said in a remark.
class MetricsLog {
 public:
  /// Continues the log of a run, whose first `bytes` bytes belong to the checkpoint; what a killed process
  /// wrote after them is cut off, since it will be written again. 0 starts anew. Lines that are no records
  /// are named in a remark; they stay in the file.
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
