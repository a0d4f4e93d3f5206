#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heed/base/setting.h"
#include "heed/training/optimizer.h"
#include "heed/training/precision.h"
#include "heed/training/progress.h"

namespace heed {

class RunFolder;

struct TrainerOptions {
  std::int64_t steps = 0;   ///< optimizer steps; 0: as many as `epochs` takes
  std::int64_t epochs = 0;  ///< passes over the data, at most 1,000,000; of both, the earlier end counts
  /// Batches per step. The step's gradient is the mean over all their tokens, added in batch order.
  /// A run may have at most 2^31 - 1 batches in all.
  std::int64_t accumulation = 1;
  double clip_norm = 0;  ///< limit on the global gradient norm; 0: none
  /// Decay of the weights' moving average, which is evaluated and saved as best; 0: none.
  double ema_decay = 0;
  OptimizerOptions optimizer = {};
  std::vector<PartRate> part_rates = {};  ///< learning rates for parts of the model; 0: frozen
  ScheduleOptions schedule = {};
  /// A custom schedule, used instead of `schedule`. Checkpoints do not store it: pass the same
  /// function on resume for bit-identical results.
  Schedule learning_rate = {};
  std::int64_t log_every = 50;  ///< steps between progress records
  /// Calls the progress callback after this many seconds even if no record is due; 0: never. Such a
  /// call changes nothing and is written to no file. It waits for the device.
  double log_seconds = 0;
  std::int64_t evaluate_every = 0;  ///< steps between evaluations, plus one at the end; 0: none
  /// The minimum number of evaluations in the whole training. If evaluate_every makes fewer, more
  /// are added between them, at least 20 steps apart; these are shown but do not select weights.
  std::int64_t shown_evaluations = 0;
  /// The most held-out tokens or texts that the added evaluations read, in the task's unit; 0: all.
  std::int64_t shown_sample = 0;
  std::int64_t patience = 0;  ///< stop after this many evaluations without a better one; 0: never
  /// Steps between checkpoints; a better evaluation and the end also save one.
  std::int64_t save_every = 0;
  std::uint64_t seed = 0;
  Precision precision = Precision::f32;  ///< type the model computes in; the weights stay f32
  /// Also write the metrics to tensorboard/events.* in the run folder.
  bool tensorboard = false;
};

void for_each_setting(auto&& visit, TrainerOptions& options) {
  constexpr double most = 0x1p31 - 1;
  const SettingTraits free = {.changes = Changes::on_resume};
  visit(options.steps, "steps", 0, most, "Optimizer steps", free);
  visit(options.epochs, "epochs", 0, 1e6,
        "Passes over the data; of steps and epochs, the earlier end counts; 0: by steps", free);
  visit(options.accumulation, "accumulation", 1, most,
        "Batches per step; the gradient is the mean over all their tokens");
  visit(options.clip_norm, "clip_norm", 0, most_in_f32, "Limit on the gradient norm; 0: none");
  visit(options.ema_decay, "ema_decay", 0, below_one,
        "Decay of the moving average of the weights, which is evaluated and saved as best; 0: none");
  for_each_setting_below("optimizer", visit, options.optimizer);
  for_each_setting_below("schedule", visit, options.schedule);
  visit(options.log_every, "log_every", 0, most_steps, "Steps between progress records", free);
  visit(options.log_seconds, "log_seconds", 0, 1e9,
        "Seconds after which progress is shown in any case; 0: only by steps", free);
  visit(options.tensorboard, "tensorboard", "Also write the curves as TensorBoard files", free);
  visit(options.evaluate_every, "evaluate_every", 0, most_steps,
        "Steps between evaluations; 0: no evaluations");
  visit(options.shown_evaluations, "shown_evaluations", 0, 1000,
        "Least number of evaluations; those beyond evaluate_every are only shown and do not select weights",
        free);
  visit(options.shown_sample, "shown_sample", 0, most_steps,
        "Most tokens, texts or pairs to read in evaluations that are only shown; 0: all. Other evaluations, "
        "and the one at the last step, read all",
        free);
  visit(options.patience, "patience", 0, most_steps,
        "Stop training after this many evaluations without improvement; 0: never", free);
  visit(options.save_every, "save_every", 0, most_steps,
        "Steps between checkpoints; better evaluations and the last step also save one", free);
}

/// The callbacks through which the trainer reports to the program; the library itself never prints.
/// All may be empty.
struct TrainerCallbacks {
  std::function<void(const Progress&)> progress = {};
  std::function<void(std::string_view)> message = {};  ///< warnings and remarks
  /// Called after each step; true: save a checkpoint and return.
  std::function<bool()> stop_requested = {};
  /// Called after evaluations and at the end of training in a folder, with all records, for example
  /// to write a report. An Error that it throws becomes a message.
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

}  // namespace heed
