#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/models/module.h"
#include "heed/text/safetensors.h"
#include "heed/training/optimizer.h"
#include "heed/training/precision.h"
#include "heed/training/run_folder.h"

namespace heed {

// --- model weights in a file

/// Returns the parameters and buffers of a model by name. They share memory with the model.
std::map<std::string, Tensor> model_state(Module& model);
/// Loads the parameters and buffers of a model in place. Throws as copy_named_tensors does, and
/// then changes nothing.
void load_model_state(Module& model, const std::map<std::string, Tensor>& state, std::string_view source);

/// Returns an independent copy with the same dtype, device and values. It is built from
/// `arguments`, the arguments of the original's constructor; without any, from the model's
/// config(), or by the default constructor of a model that has no config().
template <class Model, class... Arguments>
std::unique_ptr<Model> clone(Model& model, Arguments&&... arguments) {
  std::unique_ptr<Model> copy;
  if constexpr (sizeof...(Arguments) == 0 && requires { model.config(); })
    copy = std::make_unique<Model>(model.config());
  else
    copy = std::make_unique<Model>(std::forward<Arguments>(arguments)...);
  if (const std::vector<NamedTensor> parameters = model.parameters(); !parameters.empty())
    copy->to(parameters.front().tensor->dtype(), parameters.front().tensor->device());
  load_model_state(*copy, model_state(model), "clone");
  return copy;
}

/// Writes a model in the safetensors format, which other tools read too. Equal weights give equal
/// bytes.
void save_model(Module& model, const std::filesystem::path& path,
                std::map<std::string, std::string> metadata = {});
/// Writes a model to an open file, as save_model does.
void write_model(FileWriter& file, Module& model, std::map<std::string, std::string> metadata = {});
/// Loads a file that save_model wrote and returns its metadata. Optimizer state in the file is
/// ignored.
std::map<std::string, std::string> load_model(Module& model, const std::filesystem::path& path);
/// Saves a model and its optimizer in one file, all that a custom training loop needs to resume.
/// Loading throws, and changes nothing, unless the file has both and both fit.
void save_model(Module& model, const Optimizer& optimizer, const std::filesystem::path& path,
                std::map<std::string, std::string> metadata = {});
std::map<std::string, std::string> load_model(Module& model, Optimizer& optimizer,
                                              const std::filesystem::path& path);

// --- a checkpoint: everything that training needs to continue

/// The entry for a weights file in trainer_state.json.
struct SavedFile {
  std::string digest;
  std::int64_t step = 0;  ///< the step its weights come from
};

/// The contents of trainer_state.json: everything a run needs to resume besides the weights and the
/// optimizer's moments.
struct TrainerState {
  std::string identity;  ///< of the run
  /// Of the checkpoint, and best.safetensors if there is one.
  std::map<std::string, SavedFile> files;
  std::int64_t step = 0;          ///< optimizer steps done
  std::int64_t epoch = 0;         ///< epoch of the next batch
  std::int64_t batch = 0;         ///< index of the next batch in its epoch
  std::int64_t batches_done = 0;  ///< over all epochs; numbers the random streams
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

/// Returns the text of trainer_state.json, which ends with its own digest.
std::string trainer_state_text(const TrainerState& state);
/// Parses the text of trainer_state.json. Throws an Error naming `source` if trainer_state_text did
/// not write the text or, with `verify`, if it was changed since.
TrainerState parse_trainer_state(std::string_view text, std::string_view source, bool verify = true);

/// Returns what computes in this precision: the matrix-product library and the instruction set of the
/// kernels, such as "own products, AVX3, AMX". On another platform the last bits of results may differ.
std::string platform_name(Device device, Precision precision = Precision::f32);

/// The parts that a checkpoint saves and restores; `average` may be null.
struct TrainingParts {
  Module& model;
  Optimizer& optimizer;
  MovingAverage* average = nullptr;
  /// The complete optimizer state, if `optimizer` owns only part of it: saved from and restored to
  /// this map. Null: the optimizer's own state.
  std::map<std::string, Tensor>* optimizer_state = nullptr;
};

/// Writes model.safetensors, optimizer.safetensors and trainer_state.json atomically; with
/// `as_best`, also the current weights (their moving average if there is one) as best.safetensors.
/// Sets the run's identity and the digests of the files in `state`.
void save_checkpoint(RunFolder& folder, const TrainingParts& parts, TrainerState& state, bool as_best);
/// Restores the parts. Throws an Error naming the file if the checkpoint is damaged, changed, from
/// other software or from another model or run, or if its files do not belong together. If the
/// folder does not verify, the files only need to be readable and fit.
TrainerState load_checkpoint(const RunFolder& folder, const TrainingParts& parts);

/// Reads a weights file listed in `state`. Throws an Error describing the file if it is missing or,
/// with `verify`, if it is not the one that was written.
TensorFile read_saved_file(const std::filesystem::path& path, const TrainerState& state, bool verify);

// --- reading a run

/// Read-only access to a run, which may have been killed or may be training right now.
class RunFiles {
 public:
  /// Opens a run in a folder. Throws an Error if there is no run, if its run.json is missing, or if
  /// its configuration was changed. Without `verify`, this and all later calls read whatever can be
  /// read.
  static std::shared_ptr<const RunFiles> open(const std::filesystem::path& run, bool verify = true);
  virtual ~RunFiles() = default;

  const std::filesystem::path& path() const { return path_; }
  const std::string& task() const { return manifest_.task; }
  /// The text of config.json.
  const std::string& config() const { return config_; }
  const std::string& identity() const { return manifest_.identity; }
  /// The run it started from, as in RunManifest; empty if it started from random weights.
  const std::map<std::string, std::string>& origin() const { return manifest_.origin; }
  /// Returns one of the run's initial files, such as "tokenizer.json".
  virtual std::string text(std::string_view name) const = 0;
  /// Throws an Error unless all initial files are as the run wrote them.
  void check_files() const;
  /// The digest of a part of the data; "" if none was recorded.
  std::string data_digest(std::string_view part) const;
  /// False until the first checkpoint is written; until then, training resumes from the beginning.
  virtual bool has_checkpoint() const = 0;
  /// Whether an evaluation chose best weights (or, without evaluations, weights were averaged).
  virtual bool has_best() const = 0;
  /// The recorded digest and step of the "best" or "last" weights. Throws an Error if there are
  /// none.
  virtual SavedFile saved(std::string_view which) const = 0;
  /// Loads the "best" or the "last" weights into a model. Throws an Error that says what to do if
  /// the run has no such weights, or if their file is missing or not the one that the run wrote.
  void load_weights(Module& model, std::string_view which) const;
  /// Weights by name, for a model of another kind.
  struct Weights {
    std::map<std::string, Tensor> tensors;
    std::string digest;  ///< of their file
  };
  virtual Weights weights(std::string_view which) const = 0;
  /// Remarks for the user who opens the run.
  virtual std::vector<std::string> remarks() const { return {}; }

 protected:
  RunFiles(std::filesystem::path path, std::string config, RunManifest manifest)
      : path_(std::move(path)), config_(std::move(config)), manifest_(std::move(manifest)) {}
  /// Returns the digest of one of the initial files. Throws an Error if there is none of the name.
  const std::string& digest_of_file(std::string_view name) const;

 private:
  const std::filesystem::path path_;
  const std::string config_;
  const RunManifest manifest_;
};

}  // namespace heed
