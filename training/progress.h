#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/open_folder.h"

namespace heed {

/// The progress of training. Records with metrics are evaluations; the others are taken every few
/// steps.
struct Progress {
  std::int64_t step = 0;   ///< optimizer steps done
  std::int64_t steps = 0;  ///< optimizer steps in all
  std::int64_t epoch = 0;  ///< complete passes over the data
  double loss = 0;         ///< mean per token since the last record
  double learning_rate = 0;
  double gradient_norm = 0;  ///< of the last step, before clipping
  double tokens_per_second = 0;
  double elapsed_seconds = 0;  ///< of all sessions of the run
  double seconds_left = 0;
  /// Peak memory of tensors on the model's device so far; 0: unknown.
  std::int64_t memory_bytes = 0;
  /// Auxiliary losses, mean since the last record.
  std::vector<std::pair<std::string, double>> auxiliary = {};
  std::vector<std::pair<std::string, double>> metrics = {};  ///< of an evaluation
  bool is_best = false;                                      ///< the evaluation is the best so far
  std::int64_t sample = 0;      ///< held-out tokens or texts that the evaluation read; 0: all
  std::string unit = "tokens";  ///< what tokens_per_second counts
  std::string how = {};         ///< Evaluation::how

  bool is_evaluation() const { return !metrics.empty(); }
};

struct Metric {
  std::string name;
  double value = 0;
  bool larger_is_better = false;
};

/// Returns the first metric that is not finite, which means that training has diverged; null if all
/// are finite.
const Metric* first_not_finite(std::span<const Metric> metrics);

/// The result of an evaluation. Without metrics there is no early stopping and no best checkpoint.
/// A metric "loss" is compared with the training loss and must be the same kind of mean.
struct Evaluation {
  std::vector<Metric> metrics;
  std::string keep_best_by;  ///< name of the metric that decides which weights are best
  /// For a sample of the validation data (Objective::sample()): the tokens or texts that were read, and
  /// their total; 0: all were read.
  std::int64_t sample = 0, all = 0;
  std::string unit = {};  ///< of both; empty: Objective::unit()
  /// How answers were found, if a measurement of the trained run may find others: "greedy search".
  std::string how = {};
};

/// Returns a progress line: "step 1200/10000 epoch 3 loss 2.314 rate 5.0e-04 norm 0.83 12.3k
/// tokens/s 4:05 left"; an evaluation lists its metrics. With `columns` > 0, the least important
/// parts are dropped until the line fits; the time left goes last.
std::string progress_text(const Progress& progress, int columns = 0);
/// Returns the display name of a metric: "exact match" for "exact".
std::string metric_title(std::string_view name);
/// Returns a duration as "4:05", "1:02:03" or "2d 03:04:05".
std::string duration_text(double seconds);

/// Prints progress on a stream: on a terminal, one line with a bar that is overwritten; otherwise,
/// one line per record.
class ProgressPrinter {
 public:
  struct Style {
    bool overwrite = false;  ///< the stream is a terminal
    bool color = false;
    int columns = 80;
  };
  /// Returns the style for a file descriptor: whether it is a terminal, its width, and no color if
  /// NO_COLOR is set or TERM is "dumb".
  static Style style_of(int descriptor);

  ProgressPrinter(std::ostream& out, Style style) : out_(out), style_(style) {}
  void show(const Progress& progress);
  /// Prints separate lines above the progress line. Terminal control characters are shown, not
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

/// The file metrics.jsonl: one JSON object per progress record, appended during training.
///
/// Problems with this file never stop training: failures to read or write it are reported through
/// `remark`.
class MetricsLog {
 public:
  /// Continues the log of a run, whose first `bytes` bytes belong to the checkpoint. Later lines,
  /// written by a killed process, are cut off, because they will be written again. 0 starts a new
  /// log. Lines that are not records are reported but stay in the file.
  MetricsLog(OpenFolder run, std::int64_t bytes, std::function<void(std::string_view)> remark = {});

  void append(const Progress& progress);
  /// Flushes all lines to disk and returns the length of the file.
  std::int64_t sync();
  /// The records of the file, skipping lines that are not records.
  std::vector<Progress> records() const;

 private:
  void open(std::int64_t bytes);
  void check_lines() const;
  void report_failure(std::string_view reason);

  OpenFolder run_;
  std::filesystem::path path_;  // path of the file, for messages
  std::function<void(std::string_view)> remark_;
  std::int64_t bytes_ = 0;
  bool is_open_ = false;         // false: the contents of the file are unknown, so nothing is written to it
  bool needs_line_end_ = false;  // before the next record
  bool is_torn_ = false;         // a failed write may have left something after bytes_
  bool failure_is_said_ = false;
};

/// Returns the records in a metrics file, skipping lines that are not records. Empty if there is no
/// file.
std::vector<Progress> read_metrics(const std::filesystem::path& path);

/// Converts a record to a line of the log, without the line end, and back. Parsing throws for other
/// text.
std::string metrics_line(const Progress& progress);
Progress parse_metrics_line(std::string_view line);

}  // namespace heed
