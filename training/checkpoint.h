#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "heed/data/safetensors.h"
#include "heed/training/optimizer.h"
#include "heed/training/precision.h"
#include "heed/training/run_folder.h"

namespace heed {

/// What trainer_state.json records about a weights file.
struct SavedFile {
  std::string digest;
  std::int64_t step = 0;  ///< the step its weights come from
};

/// Everything a run needs to continue besides the weights and the optimizer's moments: the
/// contents of trainer_state.json.
struct TrainerState {
  std::string identity;                    ///< of the run
  std::map<std::string, SavedFile> files;  ///< of the checkpoint, and best.safetensors if there is one
  std::int64_t step = 0;                   ///< optimizer steps done
  std::int64_t epoch = 0;                  ///< epoch of the next batch
  std::int64_t batch = 0;                  ///< index of the next batch in its epoch
  std::int64_t batches_done = 0;           ///< over all epochs; numbers the random streams
  std::uint64_t seed = 0;
  std::int64_t epoch_batches = 0;     ///< batches in the current epoch, to notice changed data
  std::optional<double> first_loss;   ///< mean per token of the first step
  std::optional<double> best_metric;  ///< of all evaluations
  std::optional<double> best_loss;    ///< of the same evaluation, if it measured one
  std::int64_t best_step = 0;
  std::int64_t evaluations_without_improvement = 0;
  double elapsed_seconds = 0;
  std::int64_t tokens_since_record = 0;               ///< since the last progress record
  std::map<std::string, double> losses_since_record;  ///< sums of the losses over those tokens
  std::int64_t metrics_bytes = 0;                     ///< length of metrics.jsonl
  LossScaleState loss_scale;                          ///< for training in f16
  std::string platform;  ///< what affects the last bits of results besides the code
};

/// The text of trainer_state.json, which ends with its own digest.
std::string trainer_state_text(const TrainerState& state);
/// Throws an Error naming `source` if trainer_state_text did not write the text or, with
/// `verify`, if it was changed since.
TrainerState parse_trainer_state(std::string_view text, std::string_view source, bool verify = true);

/// The kernels used on this machine for matrix products and for everything else, such as "OpenBLAS Haswell,
/// AVX2". On another platform the last bits of results may differ.
std::string platform_name(Device device);

/// The parts that a checkpoint saves and restores; `average` may be null.
struct TrainingParts {
  Module& model;
  Optimizer& optimizer;
  MovingAverage* average = nullptr;
  /// The complete optimizer state, if `optimizer` owns only part of it: saved from and restored to this
  /// map. Null: the optimizer's own state.
  std::map<std::string, Tensor>* optimizer_state = nullptr;
};

/// Writes model.safetensors, optimizer.safetensors and trainer_state.json atomically; with `as_best`, also
/// the current weights (their moving average if there is one) as best.safetensors. Sets the run's identity
/// and the digests of the files in `state`. If the best weights have disappeared, throws an Error after
/// writing a checkpoint without them.
void save_checkpoint(RunFolder& folder, const TrainingParts& parts, TrainerState& state, bool as_best);
/// Restores the parts. Throws an Error naming the file if the checkpoint is damaged, changed, from other
/// software or from another model or run, or if its files do not belong together. If the folder does not
/// verify, the files only need to be readable and fit.
TrainerState load_checkpoint(const RunFolder& folder, const TrainingParts& parts);

/// Reads a weights file listed in `state`. Throws an Error describing the file if it is missing or, with
/// `verify`, if it is not the one that was written.
TensorFile read_saved_file(const std::filesystem::path& path, const TrainerState& state, bool verify);

}  // namespace heed
