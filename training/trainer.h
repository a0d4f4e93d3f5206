#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "heed/training/checkpoint.h"
#include "heed/training/gradient_exchange.h"
#include "heed/training/optimizer.h"
#include "heed/training/precision.h"
#include "heed/training/progress.h"
#include "heed/training/run_folder.h"
#include "heed/training/step_monitor.h"
#include "heed/training/task.h"
#include "heed/training/tensorboard.h"

namespace heed {

struct TrainerOptions {
  std::int64_t steps = 0;   ///< of the optimizer; 0: as many as `epochs` take
  std::int64_t epochs = 0;  ///< passes over the data, at most 1,000,000; give this or `steps`
  /// Batches per step; their gradient is the mean over all their tokens, added in the order of the batches.
  /// At most 2^31 - 1 batches in all.
  std::int64_t accumulation = 1;
  double clip_norm = 0;  ///< limit of the gradient's global norm; 0: none
  double ema_decay = 0;  ///< of the moving average of the weights, used to evaluate and as best; 0: none
  OptimizerOptions optimizer;
  std::vector<PartRate> part_rates = {};  ///< learning rates of parts of the model; 0: frozen
  ScheduleOptions schedule;
  /// A schedule of your own, in place of `schedule`: the learning rate of step 1, 2, ... of so many. It is no
  /// part of a checkpoint: give the same one to go on to the same bits.
  std::function<double(std::int64_t step, std::int64_t steps)> learning_rate = {};
  std::int64_t log_every = 50;  ///< steps between progress records
  /// Seconds after which the progress callback is called although no record is due; 0: never. What is shown
  /// then changes nothing and stands in no file. It waits for the device.
  double log_seconds = 0;
  std::int64_t evaluate_every = 0;  ///< steps between evaluations, and one at the end; 0: none
  std::int64_t patience = 0;        ///< stop after so many evaluations without a better one; 0: never
  std::int64_t save_every = 0;  ///< steps between checkpoints; a better evaluation and the end make one too
  std::uint64_t seed = 0;
  Precision precision = Precision::f32;  ///< in which the model computes; the weights stay f32
  bool tensorboard = false;              ///< also writes the metrics as tensorboard/events.* of the run
};

/// Throws an Error that names the first option out of range, or that does not fit the others.
void check_options(const TrainerOptions& options);

/// Throws an Error where nothing is recorded on this thread (NoGrad), so that nothing could be learned.
void check_recording(std::string_view what);

/// How the trainer talks to the program; the library itself never prints. All may be empty.
struct TrainerCallbacks {
  std::function<void(const Progress&)> progress = {};
  std::function<void(std::string_view)> message = {};  ///< warnings and remarks
  std::function<bool()> stop_requested = {};  ///< asked after each step; true: save a checkpoint and return
};

struct TrainResult {
  std::int64_t step = 0;
  bool finished = false;       ///< all steps were made, or `stopped_early`
  bool stopped_early = false;  ///< out of patience
  std::optional<double> best_metric;
  std::int64_t best_step = 0;
  double seconds = 0;  ///< of all sessions of the run
};

/// Trains the model of a task.
///
/// A gradient or loss that is not finite ends training with an Error that names the step and the parameter;
/// the weights and the last checkpoint stay as they were before that step. The CPU throws in that step. On
/// another device no step waits: the steps that follow change nothing, and the Error comes with the next
/// record, evaluation or checkpoint. Weights that nothing can be computed with are not saved.
///
/// What gets gradients in the first step and is no parameter of the model, because its part was never
/// registered, is remarked on.
///
/// Several processes, each with a Trainer of the same task, options and data, share the batches of every step
/// (gradient_exchange.h), to the bits of one. Rank 0 alone has a folder and talks; its weights are where
/// all start from, and a stop that is asked of any is one of all.
class Trainer {
 public:
  /// Throws for options out of range. The task, and `ranks` unless it is null, must outlive the trainer.
  Trainer(Task& task, const TrainerOptions& options, TrainerCallbacks callbacks = {}, Ranks* ranks = nullptr);

  /// Trains to the end. With a folder, continues from its checkpoint when it has one, and writes checkpoints,
  /// best.safetensors, metrics.jsonl and report.html. best.safetensors holds the weights (averaged when
  /// ema_decay is set) of the best evaluation; without evaluations the averaged weights of the last
  /// checkpoint. An evaluation that is not finite, or whose loss shows that training diverged, is never the
  /// best, and a best that is worse than the untrained model is remarked on. A checkpoint that cannot be
  /// written ends training with an Error; metrics and the report do not.
  TrainResult run(RunFolder* folder = nullptr);

 private:
  /// What is known after one step, beside the losses.
  struct StepOutcome {
    double learning_rate;
    Tensor gradient_norm;
  };
  /// Counts of this session, for the speed and the time left.
  struct Session {
    std::chrono::steady_clock::time_point start, last_record, last_shown;
    std::int64_t first_step = 0;
    std::int64_t tokens_since_record = 0;
    double earlier_seconds = 0;
    int far_records = 0;         // one after the other, in which the loss was far above its start
    int steep_records = 0;       // likewise, in which the gradient's norm dwarfed the loss
    std::set<std::string> said;  // what is said once
    std::int64_t evaluations = 0;
    bool larger_is_better = false;  // of the metric that chooses the best
  };

  void open(RunFolder* folder);
  bool load();
  void check_resumed();
  StepOutcome step();
  void say_untrained(const std::vector<Shape>& shapes);
  double learning_rate() const;
  std::int64_t accumulate_gradients();
  BatchOutcome run_batch();
  Tensor objective_of(const Loss& batch, const Context& context, BatchOutcome& outcome);
  void advance();
  void check_finite();
  void record_losses(const StepOutcome& outcome);
  void show_between_records(const StepOutcome& outcome);
  Progress measured(const StepOutcome& outcome) const;
  void read_first_loss();
  void judge(const Progress& progress);
  bool evaluate();
  Evaluation measure();
  bool is_better(const Evaluation& evaluation, const Metric& metric) const;
  void publish(const Progress& progress);
  void save(bool as_best);
  void restore_run();
  void check_run();
  void write_report();
  void say(std::string_view text) const;
  void say_once(const std::string& topic, std::string_view text);
  void say_skipped_steps();
  void say_outcome(const TrainResult& result);
  Progress progress_now() const;
  double elapsed_seconds() const;
  bool due(std::int64_t every) const { return every > 0 && state_.step % every == 0; }
  bool out_of_patience() const;
  TrainingParts parts(std::map<std::string, Tensor>& moments) {
    return {task_.model(), optimizer_, average_.get(), exchange_.is_shared() ? &moments : nullptr};
  }

  Task& task_;
  TrainerOptions options_;
  TrainerCallbacks callbacks_;
  TrainedParameters trained_;
  GradientExchange exchange_;
  Optimizer optimizer_;
  std::unique_ptr<MovingAverage> average_;  // null without ema_decay
  std::int64_t last_batch_ = 0;             // how many batches there are in all; 0: no limit but the steps
  std::int64_t steps_ = 0;
  bool evaluates_ = false;  // false: nothing was measured, so the averages themselves are the best weights
  TrainerState state_;
  Tensor first_loss_;  // of the first step, mean per token, before any weight was changed
  LossMeter meter_;
  FiniteGuard guard_;
  std::unique_ptr<Autocast> autocast_;               // from open() on
  std::int64_t skipped_said_ = 0;                    // how many skipped steps the user has been told of
  std::map<std::string, double> auxiliary_weights_;  // of auxiliary losses, in the last batch
  Session session_;
  bool saves_ = false;  // rank 0 has a folder
  RunFolder* folder_ = nullptr;
  std::unique_ptr<MetricsLog> metrics_;  // null without a folder
  std::unique_ptr<TensorBoardLog> tensorboard_;
};

}  // namespace heed
