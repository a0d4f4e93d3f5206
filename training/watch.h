#pragma once

#include <chrono>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "heed/training/checkpoint.h"
#include "heed/training/step.h"
#include "heed/training/tensorboard.h"
#include "heed/training/trainer_options.h"

namespace heed {

/// Monitors a Trainer: shows and records progress, warns about suspicious values, selects the best
/// evaluation and applies the patience. It changes no weight.
class TrainingWatch {
 public:
  /// `options` and `state` must outlive the watch, which keeps the best evaluation, the first loss,
  /// the elapsed time and the length of metrics.jsonl in the state. `steps`: of the whole run;
  /// `unit`: of the task; `device`: of the model.
  TrainingWatch(const TrainerOptions& options, TrainerCallbacks callbacks, TrainerState& state,
                std::int64_t steps, std::string unit, Device device);

  /// Begins a session of the run, and warns about options that have no effect. With a folder,
  /// records go to its files; null: only to the callbacks. `batches`: per epoch.
  void open(RunFolder* folder, std::int64_t batches);

  void say(std::string_view text) const;
  /// Stores the loss of the untrained model, one element, for comparison with later losses.
  void set_first_loss(const Tensor& mean) { first_loss_ = mean; }
  /// Reports tensors that still have a gradient after the first step because they are not
  /// parameters of the model. `shapes`: their shapes.
  void report_unregistered(const std::vector<Shape>& shapes) const;

  /// Reports the expected training time after ten steps of a session if it exceeds three minutes,
  /// and the warm-up's if it alone does.
  void report_expected_time() const;

  /// Writes a record of the losses since the last one. `weights`: of the auxiliary losses;
  /// `loss_scale`: null unless the model computes in f16. Waits for the device.
  void record(const StepOutcome& outcome, const LossMeter& losses,
              const std::map<std::string, double>& weights, const LossScale* loss_scale);
  /// Whether TrainerOptions::log_seconds have passed since progress was last shown.
  bool wants_to_show() const;
  /// Shows the same numbers as a record without storing any of them. Waits for the device.
  void show(const StepOutcome& outcome, const LossMeter& losses);

  /// Calls `measure`, records the result and calls report(). Returns true if it is the best so far:
  /// by the deciding metric; ties by the loss; further ties go to the latest.
  bool evaluate(const std::function<Evaluation()>& measure);
  /// Calls `measure` and records the result without selecting weights or affecting patience.
  void show_evaluation(const std::function<Evaluation()>& measure);
  /// Whether there are evaluations. Without them, the moving averages themselves are the best
  /// weights.
  bool evaluates() const { return evaluates_; }
  bool out_of_patience() const;

  /// Updates the state for a checkpoint. Waits for the device and the disk.
  void save();
  /// Passes all records so far to TrainerCallbacks::report. A failure does not end training.
  void report();
  /// Returns the result of training.
  TrainResult finish();

 private:
  using Clock = std::chrono::steady_clock;

  Evaluation timed(const std::function<Evaluation()>& measure);
  void warn_ineffective_options(std::int64_t batches) const;
  void say_better_shown(const Metric& metric) const;
  Progress make_progress(const Evaluation& evaluation) const;
  Progress progress_now() const;
  Progress measured(const StepOutcome& outcome, const LossMeter& losses) const;
  void publish(const Progress& progress);
  void read_first_loss();
  std::partial_ordering compare_with_best(const Evaluation& evaluation, const Metric& metric) const;
  std::int64_t evaluations_alike() const;
  void judge(const Progress& progress, const std::map<std::string, double>& weights);
  void say_skipped_steps(const LossScaleState& scale);
  void say_once(const std::string& topic, std::string_view text);
  double elapsed_seconds() const;

  /// Counters of a session, for throughput, remaining time and remarks.
  struct Session {
    Clock::time_point start = Clock::now(), last_record = start, last_shown = start;
    std::int64_t first_step = 0;
    std::int64_t earlier_tokens = 0;  // since the last record, but counted in an earlier session
    double earlier_seconds = 0;
    std::int64_t skipped_said = 0;  // skipped steps already reported
    int far_records = 0;            // consecutive records whose loss was far above its start
    int steep_records = 0;          // consecutive records whose gradient norm dwarfed the loss
    std::set<std::string> said;     // topics already reported
    std::int64_t evaluations = 0;
    Metric first_metric = {};               // that chooses the best, of the first of them
    bool metric_moves = false;              // another evaluation had another value
    std::optional<Metric> best_shown = {};  // of the evaluations that were only shown
    std::int64_t best_shown_step = 0;
  };

  const TrainerOptions& options_;
  TrainerCallbacks callbacks_;
  TrainerState& state_;
  std::int64_t steps_;
  std::string unit_;
  Device device_;
  bool evaluates_;
  Tensor first_loss_;  // mean per token in the first step, before any weight changed
  Session session_;
  RunFolder* folder_ = nullptr;
  std::unique_ptr<MetricsLog> metrics_;  // null without a folder
  std::unique_ptr<TensorBoardLog> tensorboard_;
};

}  // namespace heed
