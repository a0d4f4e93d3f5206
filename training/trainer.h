#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/core/ranks.h"
#include "heed/models/loss.h"
#include "heed/models/module.h"
#include "heed/training/checkpoint.h"
#include "heed/training/optimizer.h"
#include "heed/training/precision.h"
#include "heed/training/progress.h"
#include "heed/training/step.h"

namespace heed {

class GradientExchange;
class TrainingWatch;

struct Metric {
  std::string name;
  double value = 0;
  bool larger_is_better = false;
};

/// The first metric that is not a finite number, which means that training has diverged; null: all are.
const Metric* not_finite(std::span<const Metric> metrics);

/// The result of an evaluation. Without metrics there is no early stopping and no best checkpoint. A metric
/// "loss" is compared with the training loss and must be the same kind of mean.
struct Evaluation {
  std::vector<Metric> metrics;
  std::string keep_best_by;  ///< name of the metric that decides which weights are best
};

/// What a Trainer trains: a model, its data and its loss. Results must depend only on the arguments (and
/// the seed in the context), so that a resumed run sees the same data as an uninterrupted one.
class Task {
 public:
  virtual ~Task() = default;
  virtual Module& model() = 0;
  /// The number of batches in an epoch (counted from 0); at least one.
  virtual std::int64_t batches(std::int64_t epoch) = 0;
  /// The loss of a batch of an epoch, without auxiliary losses: the trainer adds those that layers put in
  /// the context.
  virtual Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) = 0;
  /// Measures the model on validation data; called with recording off. With several ranks, it is
  /// called on all of them with the same weights, and the result of rank 0 counts; deal_out(ranks(),
  /// ...) shares work among them.
  virtual Evaluation evaluate() { return {}; }
  /// The ranks sharing the current evaluation; null: only this process.
  Ranks* ranks() const { return ranks_; }
  void share_evaluation(Ranks* ranks) { ranks_ = ranks; }
  /// The unit of a batch's count, as the progress line shows it: "1.2k texts/s".
  virtual std::string unit() const { return "tokens"; }

 private:
  Ranks* ranks_ = nullptr;
};

struct TrainerOptions {
  std::int64_t steps = 0;   ///< optimizer steps; 0: as many as `epochs` takes
  std::int64_t epochs = 0;  ///< passes over the data, at most 1,000,000; give this or `steps`
  /// Batches per step. The step's gradient is the mean over all their tokens, added in batch order. A run
  /// may have at most 2^31 - 1 batches in all.
  std::int64_t accumulation = 1;
  double clip_norm = 0;  ///< limit on the global gradient norm; 0: none
  /// Decay of the weights' moving average, which is evaluated and saved as best; 0: none.
  double ema_decay = 0;
  OptimizerOptions optimizer = {};
  std::vector<PartRate> part_rates = {};  ///< learning rates for parts of the model; 0: frozen
  ScheduleOptions schedule = {};
  /// A custom schedule, used instead of `schedule`.
  /// Checkpoints do not store it: pass the same function when resuming to get the same bits.
  Schedule learning_rate = {};
  std::int64_t log_every = 50;  ///< steps between progress records
  /// Call the progress callback after this many seconds even if no record is due; 0: never. Such a call
  /// changes nothing and is written to no file. It waits for the device.
  double log_seconds = 0;
  std::int64_t evaluate_every = 0;  ///< steps between evaluations, plus one at the end; 0: none
  /// Evaluations over the whole training at the least. Where evaluate_every makes fewer, others come between
  /// them, at least 20 steps apart; these are shown and choose nothing.
  std::int64_t shown_evaluations = 0;
  std::int64_t patience = 0;    ///< stop after this many evaluations without a better one; 0: never
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
  visit(options.clip_norm, "clip_norm", 0, most_in_f32, "Limit of the gradient's norm; 0: none");
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
  visit(options.shown_evaluations, "shown_evaluations", 0, 1000,
        "Evaluations at the least; beyond those of evaluate_every they are shown and choose no weights",
        free);
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
  /// Called after evaluations and at the end of a training in a folder, with all that was recorded: to write a
  /// report, say. An Error that it throws becomes a message.
  std::function<void(const RunFolder& run, std::span<const Progress> records)> report = {};
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
  ~Trainer();

  /// Trains to the end. With a folder, continues from its checkpoint if there is one, and writes
  /// checkpoints, best.safetensors and metrics.jsonl. best.safetensors holds the weights
  /// (averaged if ema_decay is set) of the best evaluation; without evaluations, the averaged weights of
  /// the last checkpoint. An evaluation that is not finite, or whose loss shows that training diverged, is
  /// never the best; a message warns if the best is worse than the untrained model. Failing to write a
  /// checkpoint ends training with an Error; failing to write metrics or the report does not.
  TrainResult run(RunFolder* folder = nullptr);

 private:
  // The mathematics of a step.
  StepOutcome step();
  std::int64_t accumulate_gradients();
  std::vector<BatchOutcome> next_batches(std::int64_t left);
  BatchOutcome run_batch();
  Tensor objective_of(const Loss& batch, const Context& context, BatchOutcome& outcome);
  void advance();
  double learning_rate() const;
  std::int64_t steps_between_shown() const;
  void check_finite();
  LossScale* loss_scale();

  // A run: how it begins, goes on, measures itself and is saved.
  void open(RunFolder* folder);
  bool load();
  void check_resumed();
  Evaluation measure();
  void save(bool as_best);
  void restore_files();
  void check_run();
  bool any_rank(bool mine);
  TrainingParts parts(std::map<std::string, Tensor>& moments) {
    return {task_.model(), optimizer_, average_.get(), exchange_ ? &moments : nullptr};
  }

  Task& task_;
  TrainerOptions options_;
  std::function<bool()> stop_requested_;
  Schedule schedule_;
  TrainedParameters trained_;
  std::unique_ptr<GradientExchange> exchange_;  // null: one process
  Optimizer optimizer_;
  GradientSum sum_;                         // of one process
  std::unique_ptr<MovingAverage> average_;  // null without ema_decay
  std::unique_ptr<Autocast> autocast_;      // null in f32
  std::int64_t last_batch_ = 0;             // total number of batches; 0: limited only by the steps
  std::int64_t steps_ = 0;
  Device device_;
  TrainerState state_;
  LossMeter meter_;
  FiniteGuard guard_;
  std::map<std::string, double> auxiliary_weights_;  // weights of the auxiliary losses in the last batch
  bool saves_ = false;                               // rank 0 has a folder
  RunFolder* folder_ = nullptr;                      // null: no folder, or another rank has it
  std::unique_ptr<TrainingWatch> watch_;
};

}  // namespace heed
