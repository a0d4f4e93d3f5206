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

/// What trainer_state.json knows of a file of weights.
struct SavedFile {
  std::string digest;
  std::int64_t step = 0;  ///< of which its weights are
};

/// Everything a run needs to go on, beside the weights and the optimizer's moments: the
/// content of trainer_state.json.
struct TrainerState {
  std::string identity;                    ///< of the run
  std::map<std::string, SavedFile> files;  ///< of the checkpoint, and best.safetensors where there is one
  std::int64_t step = 0;                   ///< steps of the optimizer done
  std::int64_t epoch = 0;                  ///< the next batch: its epoch
  std::int64_t batch = 0;                  ///< and its place in it
  std::int64_t batches_done = 0;           ///< of all epochs; numbers the random streams
  std::uint64_t seed = 0;
  std::int64_t epoch_batches = 0;     ///< batches in the present epoch, to notice that the data changed
  std::optional<double> first_loss;   ///< mean per token of the first step
  std::optional<double> best_metric;  ///< of all evaluations
  std::optional<double> best_loss;    ///< of the same evaluation, where it measured one
  std::int64_t best_step = 0;
  std::int64_t evaluations_without_improvement = 0;
  double elapsed_seconds = 0;
  std::int64_t tokens_since_record = 0;               ///< since the last progress record,
  std::map<std::string, double> losses_since_record;  ///< and the sums of the losses over them
  std::int64_t metrics_bytes = 0;                     ///< length of metrics.jsonl
  LossScaleState loss_scale;                          ///< of training in f16
  std::string platform;  ///< what decides the last bits of results besides the code
};

/// The text ends with a digest of itself.
std::string trainer_state_text(const TrainerState& state);
/// Throws an Error that names `source` for text that trainer_state_text did not write; with `verify` also
/// for text that was changed since.
TrainerState parse_trainer_state(std::string_view text, std::string_view source, bool verify = true);

/// The kernels of matrix products and of everything else on this machine, as "OpenBLAS Haswell, AVX2": on
/// another platform the last bits of results may differ.
std::string platform_name(Device device);

/// The parts that a checkpoint saves and restores; `average` may be null.
struct TrainingParts {
  Module& model;
  Optimizer& optimizer;
  MovingAverage* average = nullptr;
  /// All of the optimizer's state, where `optimizer` owns a part of it: saved from here, and restored to
  /// here. Null: the optimizer's own.
  std::map<std::string, Tensor>* optimizer_state = nullptr;
};

/// Writes model.safetensors, optimizer.safetensors and trainer_state.json as one; with `as_best`, also the
/// present weights (their moving average where there is one) as best.safetensors. `state` learns the identity
/// of the run and the digests of the files. Best weights that have disappeared are an Error, after a
/// checkpoint without them was written.
void save_checkpoint(RunFolder& folder, const TrainingParts& parts, TrainerState& state, bool as_best);
/// Restores the parts. Throws an Error that names the file for a checkpoint that is damaged, of other
/// software, of another model or run, that was changed, or whose files do not belong together. Where the
/// folder does not verify, only what can be read and fits is asked for.
TrainerState load_checkpoint(const RunFolder& folder, const TrainingParts& parts);

/// Reads a file of weights that `state` knows. Throws an Error that names the file and what it is when it is
/// missing, or, with `verify`, when it is not the one that was written.
TensorFile read_saved_file(const std::filesystem::path& path, const TrainerState& state, bool verify);

}  // namespace heed
