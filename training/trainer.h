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
  std::int64_t steps = 0;   ///< optimizer steps; 0: as many as `epochs` takes
  std::int64_t epochs = 0;  ///< passes over the data, at most 1,000,000; give this or `steps`
  /// Batches per step. The step's gradient is the mean over all their tokens, added in batch order. A run
  /// may have at most 2^31 - 1 batches in all.
  std::int64_t accumulation = 1;
  double clip_norm = 0;  ///< limit on the global gradient norm; 0: none
  /// Decay of the weights' moving average, which is evaluated and saved as best; 0: none.
  double ema_decay = 0;
  OptimizerOptions optimizer;
  std::vector<PartRate> part_rates = {};  ///< learning rates for parts of the model; 0: frozen
  ScheduleOptions schedule;
  /// A custom schedule, used instead of `schedule`: the learning rate of step 1, 2, ..., `steps`.
  /// Checkpoints do not store it: pass the same function when resuming to get the same bits.
  std::function<double(std::int64_t step, std::int64_t steps)> learning_rate = {};
  std::int64_t log_every = 50;  ///< steps between progress records
  /// Call the progress callback after this many seconds even if no record is due; 0: never. Such a call
  /// changes nothing and is written to no file. It waits for the device.
  double log_seconds = 0;
  std::int64_t evaluate_every = 0;  ///< steps between evaluations, plus one at the end; 0: none
  std::int64_t patience = 0;        ///< stop after this many evaluations without a better one; 0: never
  std::int64_t save_every = 0;  ///< steps between checkpoints; a better evaluation and the end also save one
  std::uint64_t seed = 0;
  Precision precision = Precision::f32;  ///< type the model computes in; the weights stay f32
  bool tensorboard = false;              ///< also write the metrics to tensorboard/events.* in the run folder
};

void for_each_setting(auto&& visit, TrainerOptions& options) {
  constexpr double most = 0x1p31 - 1;
  const SettingTraits free = {.changes = Changes::on_resume};
  visit(options.steps, "steps", 0, most, "Steps of the optimizer", free);
  visit(options.epochs, "epochs", 0, 1e6,
        "Passes over the data, instead of steps; 0: as many as the steps take", free);
  visit(options.accumulation, "accumulation", 1, most,
        "Batches for each step; their gradient is the mean over all their tokens");
  visit(options.clip_norm, "clip_norm", 0, 1e300, "Limit of the gradient's norm; 0: none");
  visit(options.ema_decay, "ema_decay", 0, below_one,
        "Of the moving average of the weights, which is what is measured and kept as best; 0: none");
  for_each_setting_below("optimizer", visit, options.optimizer);
  for_each_setting_below("schedule", visit, options.schedule);
  visit(options.log_every, "log_every", 0, most_steps, "Steps between progress records", free);
  visit(options.log_seconds, "log_seconds", 0, 1e9,
        "Seconds after which progress is shown anyway; 0: by steps alone", free);
  visit(options.tensorboard, "tensorboard",
        "Whether the curves are also written as files that TensorBoard reads", free);
  visit(options.evaluate_every, "evaluate_every", 0, most_steps, "Steps between evaluations; 0: none");
  visit(options.patience, "patience", 0, most_steps,
        "Evaluations without a better one after which training stops; 0: never stops", free);
  visit(options.save_every, "save_every", 0, most_steps,
        "Steps between checkpoints; better evaluations and the end make one too", free);
}

/// Throws an Error naming the first option that is out of range or conflicts with another.
void check_options(const TrainerOptions& options);

/// Throws an Error if recording is off on this thread (NoGrad), since there would be no gradients.
void check_recording(std::string_view what);

/// How the trainer reports to the program; the library itself never prints. All may be empty.
struct TrainerCallbacks {
  std::function<void(const Progress&)> progress = {};
  std::function<void(std::string_view)> message = {};  ///< warnings and remarks
  std::function<bool()> stop_requested = {};  ///< called after each step; true: save a checkpoint and return
};

struct TrainResult {
  std::int64_t step = 0;
  bool finished = false;       ///< all steps are done, or `stopped_early`
  bool stopped_early = false;  ///< out of patience
  std::optional<double> best_metric;
  std::int64_t best_step = 0;
  double seconds = 0;  ///< over all sessions of the run
};

/// Trains the model of a task.
///
/// A gradient or loss that is not finite ends training with an Error naming the step and the parameter; the
/// weights and the last checkpoint stay as they were before that step. On the CPU the step itself throws.
/// On other devices no step waits: the following steps change nothing, and the next record, evaluation or
/// checkpoint throws. Unusable weights (see check_weights()) are not saved.
///
/// After the first step, a message reports tensors that received gradients but are not parameters of the
/// model, because their module was never registered.
///
/// Several processes, each with a Trainer for the same task, options and data, share the batches of every
/// step (gradient_exchange.h); the result is bit-identical to a single-process run. Only rank 0 has a
/// folder and reports. All ranks start from its weights, and a stop requested on one rank stops all ranks.
class Trainer {
 public:
  /// Throws if an option is out of range. The task, and `ranks` unless null, must outlive the trainer.
  Trainer(Task& task, const TrainerOptions& options, TrainerCallbacks callbacks = {}, Ranks* ranks = nullptr);

  /// Trains to the end. With a folder, continues from its checkpoint if there is one, and writes
  /// checkpoints, best.safetensors, metrics.jsonl and report.html. best.safetensors holds the weights
  /// (averaged if ema_decay is set) of the best evaluation; without evaluations, the averaged weights of
  /// the last checkpoint. An evaluation that is not finite, or whose loss shows that training diverged, is
  /// never the best; a message warns if the best is worse than the untrained model. Failing to write a
  /// checkpoint ends training with an Error; failing to write metrics or the report does not.
  TrainResult run(RunFolder* folder = nullptr);

 private:
  /// What a step returns besides the losses.
  struct StepOutcome {
    double learning_rate;
    Tensor gradient_norm;
  };
  /// Counters of this session, for speed and time left.
  struct Session {
    std::chrono::steady_clock::time_point start, last_record, last_shown;
    std::int64_t first_step = 0;
    std::int64_t tokens_since_record = 0;
    double earlier_seconds = 0;
    int far_records = 0;         // consecutive records whose loss was far above its start
    int steep_records = 0;       // consecutive records whose gradient norm dwarfed the loss
    std::set<std::string> said;  // topics already reported
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
  std::int64_t last_batch_ = 0;             // total number of batches; 0: limited only by the steps
  std::int64_t steps_ = 0;
  bool evaluates_ = false;  // false: no evaluations, so the averages themselves are the best weights
  TrainerState state_;
  Tensor first_loss_;  // mean per token in the first step, before any weight changed
  LossMeter meter_;
  FiniteGuard guard_;
  std::unique_ptr<Autocast> autocast_;               // from open() on
  std::int64_t skipped_said_ = 0;                    // skipped steps already reported
  std::map<std::string, double> auxiliary_weights_;  // weights of the auxiliary losses in the last batch
  Session session_;
  bool saves_ = false;  // rank 0 has a folder
  RunFolder* folder_ = nullptr;
  std::unique_ptr<MetricsLog> metrics_;  // null without a folder
  std::unique_ptr<TensorBoardLog> tensorboard_;
};

}  // namespace heed
