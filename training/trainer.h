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
#include "heed/training/trainer_options.h"

namespace heed {

class GradientExchange;
class TrainingWatch;

/// A model with its data and loss, to be trained by a Trainer. Results must depend only on the
/// arguments (and the seed in the context), so that a resumed run sees the same data as an
/// uninterrupted one.
class Objective {
 public:
  virtual ~Objective() = default;
  virtual Module& model() = 0;
  /// The number of batches in an epoch (counted from 0); at least one.
  virtual std::int64_t batches(std::int64_t epoch) = 0;
  /// Returns the loss of a batch of an epoch, without auxiliary losses: the trainer adds those that
  /// layers put in the context.
  virtual Loss loss(std::int64_t epoch, std::int64_t batch, Context& context) = 0;
  /// Measures the model on validation data; called with recording off. With several ranks, it is
  /// called on all of them with the same weights, and the result of rank 0 counts.
  virtual Evaluation evaluate() { return {}; }
  /// The unit of a batch's count, as the progress line shows it: "1.2k texts/s".
  virtual std::string unit() const { return "tokens"; }
  /// Returns compute(piece), a list of numbers, for each piece of work. Processes that train together
  /// share the pieces of an evaluation, and each gets all results.
  template <class T, class Compute>
  std::vector<std::vector<T>> share_work(std::size_t pieces, const Compute& compute) const {
    return distribute_numbers<T>(ranks_, pieces, compute);
  }
  /// Limits the held-out tokens or texts that evaluate() reads; 0: all of them.
  void set_sample(std::int64_t most) { sample_ = most; }

 protected:
  /// The most held-out tokens or texts that the current evaluation may read; 0: all. Evaluations
  /// that are only shown read a sample (TrainerOptions::shown_sample), always the same one. An objective
  /// may ignore this; such evaluations then take longer.
  std::int64_t sample() const { return sample_; }

 private:
  friend class Trainer;
  Ranks* ranks_ = nullptr;  // that share the current evaluation; null: only this process
  std::int64_t sample_ = 0;
};

/// Throws an Error naming the first option that is out of range or conflicts with another.
void check_options(const TrainerOptions& options);

/// Throws an Error if recording is off on this thread (NoGrad), since there would be no gradients.
void check_recording(std::string_view what);

/// Trains the model of an objective.
///
/// A gradient or loss that is not finite ends training with an Error naming the step and the
/// parameter; the weights and the last checkpoint stay as they were before that step. On the CPU
/// the step itself throws. On other devices no step waits: the following steps change nothing, and
/// the next record, evaluation or checkpoint throws. Unusable weights (see check_weights()) are not
/// saved.
///
/// After the first step, a message reports tensors that received gradients but are not parameters
/// of the model, because their module was never registered.
///
/// Several processes, each with a Trainer for the same objective, options and data, share the batches of
/// every step (gradient_exchange.h); the result is bit-identical to a single-process run. Only rank
/// 0 has a folder and reports. All ranks start from its weights, and a stop requested on one rank
/// stops all ranks.
class Trainer {
 public:
  /// Throws if an option is out of range. The objective, and `ranks` unless null, must outlive the
  /// trainer.
  Trainer(Objective& objective, const TrainerOptions& options, TrainerCallbacks callbacks = {},
          Ranks* ranks = nullptr);
  ~Trainer();

  /// Trains to the end. With a folder, continues from its checkpoint if there is one, and writes
  /// checkpoints, best.safetensors and metrics.jsonl. best.safetensors holds the weights (averaged
  /// if ema_decay is set) of the best evaluation; without evaluations, the averaged weights of the
  /// last checkpoint. An evaluation that is not finite, or whose loss shows that training diverged,
  /// is never the best; a message warns if the best is worse than the untrained model. Failing to
  /// write a checkpoint ends training with an Error; failing to write metrics or the report does
  /// not.
  TrainResult run(RunFolder* folder = nullptr);

 private:
  // The mathematics of a step.
  StepOutcome step();
  std::int64_t accumulate_gradients();
  std::vector<BatchOutcome> next_batches(std::int64_t left);
  BatchOutcome run_batch();
  Tensor scale_objective(const Loss& batch, const Context& context, BatchOutcome& outcome);
  void advance();
  double learning_rate() const;
  std::int64_t shown_interval() const;
  void check_finite();
  LossScale* loss_scale();

  // Starting, resuming, evaluating and saving a run.
  void open(RunFolder* folder);
  bool load();
  void check_resumed();
  Evaluation measure(std::int64_t sample);
  void save(bool as_best);
  void check_files() const;
  void check_run();
  bool any_rank(bool mine);
  TrainingParts parts(std::map<std::string, Tensor>& moments) {
    return {objective_.model(), optimizer_, average_.get(), exchange_ ? &moments : nullptr};
  }

  Objective& objective_;
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
