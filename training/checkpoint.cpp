#include "heed/training/checkpoint.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <system_error>

#include "heed/base/digest.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/core/device.h"
#include "heed/core/version.h"

namespace heed {
namespace {

namespace fs = std::filesystem;

/// Throws if the tensors could not be loaded again.
void check_savable(const std::map<std::string, Tensor>& tensors, std::string_view what) {
  for (const auto& [name, tensor] : tensors)
    check_finite(tensor, name, what,
                 ": training has diverged; try a lower learning_rate or weight_decay, or a clip_norm");
}

}  // namespace

std::map<std::string, Tensor> model_state(Module& model) {
  std::map<std::string, Tensor> state;
  for (const NamedTensor& entry : model.state()) {
    check(state.emplace(entry.name, entry.tensor->detach()).second, "the model has two tensors named \"",
          entry.name, "\"");
  }
  return state;
}

void load_model_state(Module& model, const std::map<std::string, Tensor>& state, std::string_view source) {
  const std::map<std::string, Tensor> own = model_state(model);
  const std::vector<std::pair<std::string, Tensor>> targets(own.begin(), own.end());
  copy_named_tensors(state, targets, concat_text(source, " does not fit the model"));
  model.state_changed();
}

void save_model(Module& model, const fs::path& path, std::map<std::string, std::string> metadata) {
  write_file_atomically(path, [&](FileWriter& file) { write_model(file, model, std::move(metadata)); });
}

void write_model(FileWriter& file, Module& model, std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");  // Hugging Face's loaders insist on this entry
  std::map<std::string, Tensor> state = model_state(model);
  check_savable(state, "the model was not saved");
  write_safetensors(file, {std::move(state), std::move(metadata)});
}

constexpr const char* optimizer_prefix = "optimizer:";  // no part of a model has such a name

/// Moves tensors with a name prefix out of a file's tensors; the prefix is removed.
static std::map<std::string, Tensor> extract(std::map<std::string, Tensor>& tensors,
                                             const std::string& prefix) {
  std::map<std::string, Tensor> state;
  for (auto at = tensors.lower_bound(prefix); at != tensors.end() && at->first.starts_with(prefix);
       at = tensors.erase(at))
    state[at->first.substr(prefix.size())] = at->second;
  return state;
}

std::map<std::string, std::string> load_model(Module& model, const fs::path& path) {
  TensorFile file = load_safetensors(path);
  extract(file.tensors, optimizer_prefix);
  load_model_state(model, file.tensors, path.string());
  return std::move(file.metadata);
}

void save_model(Module& model, const Optimizer& optimizer, const fs::path& path,
                std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");
  std::map<std::string, Tensor> tensors = model_state(model);
  for (const auto& [name, tensor] : optimizer.state()) tensors[optimizer_prefix + name] = tensor;
  check_savable(tensors, "the model and its optimizer were not saved");
  write_file_atomically(path, [&](FileWriter& file) {
    write_safetensors(file, {std::move(tensors), std::move(metadata)});
  });
}

std::map<std::string, std::string> load_model(Module& model, Optimizer& optimizer, const fs::path& path) {
  TensorFile file = load_safetensors(path);
  const std::map<std::string, Tensor> state = extract(file.tensors, optimizer_prefix);
  check(!state.empty(), path, " holds no optimizer state; load_model(model, path) loads only the weights");
  optimizer.check_state(state);
  load_model_state(model, file.tensors, path.string());
  optimizer.load_state(state);
  return std::move(file.metadata);
}

// --- a checkpoint

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* format_name = "heed trainer state";
constexpr int format_version = 2;
constexpr const char* average_prefix = "moving_average.";
constexpr const char* model_name = "model.safetensors";
constexpr const char* optimizer_name = "optimizer.safetensors";
constexpr const char* best_name = "best.safetensors";

std::map<std::string, Tensor> training_tensors(const TrainingParts& parts) {
  std::map<std::string, Tensor> tensors =
      parts.optimizer_state ? *parts.optimizer_state : parts.optimizer.state();
  if (!parts.average) return tensors;
  for (const auto& [name, tensor] : parts.average->state()) tensors[average_prefix + name] = tensor;
  return tensors;
}

/// Throws if files have different steps. Files of different checkpoints can only be mixed by hand.
void check_same_step(const std::map<std::string, std::string>& metadata, std::int64_t step,
                     const fs::path& path) {
  const auto found = metadata.find("step");
  check(found != metadata.end(), path, " is not part of a checkpoint: it does not name its step");
  check(found->second == std::to_string(step), path, " is of step ", found->second,
        ", but trainer_state.json has step ", step, ": the files do not belong together");
}

/// Returns a finite number. Throws for null, which is how JSON stores values that are not finite.
double finite(const Json& value) {
  const double number = value.get<double>();
  check(std::isfinite(number), "a number is not finite");
  return number;
}

std::map<std::string, SavedFile> files_of(const Json& object) {
  check(object.is_object(), "\"files\" is not an object");
  std::map<std::string, SavedFile> files;
  for (const auto& [name, value] : object.items()) {
    files[name] = {value.at("digest").get<std::string>(), json_parts::count_in(value, "step")};
    check(is_digest(files[name].digest), "the digest of \"", name, "\" is not 32 hexadecimal digits");
  }
  return files;
}

/// Visits the members of trainer_state.json after "run" and "files", in order. `field` reads or
/// writes each.
template <class State, class Field>
void for_each_field(State& state, const Field& field) {
  field("step", state.step);
  field("epoch", state.epoch);
  field("batch", state.batch);
  field("batches_done", state.batches_done);
  field("seed", state.seed);
  field("epoch_batches", state.epoch_batches);
  field("first_loss", state.first_loss);
  field("best_metric", state.best_metric);
  field("best_loss", state.best_loss);
  field("best_step", state.best_step);
  field("evaluations_without_improvement", state.evaluations_without_improvement);
  field("elapsed_seconds", state.elapsed_seconds);
  field("tokens_since_record", state.tokens_since_record);
  field("losses_since_record", state.losses_since_record);
  field("metrics_bytes", state.metrics_bytes);
  field("loss_scale", state.loss_scale);
  field("platform", state.platform);
}

struct FieldWriter {
  Json& object;

  void operator()(const char* name, const auto& value) const { object[name] = value; }
  void operator()(const char* name, const std::optional<double>& value) const {
    object[name] = value ? Json(*value) : Json();
  }
  void operator()(const char* name, const LossScaleState& value) const {
    object[name] = {{"scale", value.scale}, {"good_steps", value.good_steps}, {"skipped", value.skipped}};
  }
};

struct FieldReader {
  const Json& object;

  void operator()(const char* name, std::int64_t& value) const { value = json_parts::count_in(object, name); }
  void operator()(const char* name, std::uint64_t& value) const {
    check(object.at(name).is_number_unsigned(), "\"", name, "\" is not an unsigned integer");
    value = object.at(name).get<std::uint64_t>();
  }
  void operator()(const char* name, double& value) const { value = finite(object.at(name)); }
  void operator()(const char* name, std::optional<double>& value) const {
    if (const auto found = object.find(name); found != object.end() && !found->is_null())
      value = finite(*found);
  }
  void operator()(const char* name, std::string& value) const { value = object.at(name).get<std::string>(); }
  void operator()(const char* name, std::map<std::string, double>& values) const {
    check(object.at(name).is_object(), "\"", name, "\" is not an object");
    for (const auto& [key, value] : object.at(name).items()) values[key] = finite(value);
  }
  void operator()(const char* name, LossScaleState& value) const {
    if (const auto scale = object.find(name); scale != object.end())
      value = {finite(scale->at("scale")), json_parts::count_in(*scale, "good_steps"),
               json_parts::count_in(*scale, "skipped")};
  }
};

TrainerState parse_state(const Json& object) {
  TrainerState state;
  state.identity = object.at("run").get<std::string>();
  state.files = files_of(object.at("files"));
  for_each_field(state, FieldReader{object});
  return state;
}

}  // namespace

std::string trainer_state_text(const TrainerState& state) {
  Json object{{"format", format_name}, {"format_version", format_version}, {"heed_version", version}};
  object["run"] = state.identity;
  object["files"] = Json::object();
  for (const auto& [name, file] : state.files)
    object["files"][name] = {{"digest", file.digest}, {"step", file.step}};
  for_each_field(state, FieldWriter{object});
  return text_with_digest(std::move(object),
                          "cannot write trainer_state.json: the name of a loss is not valid UTF-8");
}

TrainerState parse_trainer_state(std::string_view text, std::string_view source, bool verify) {
  return read_heed_json<Json>(text, source, format_name, format_version, verify ? unverified_hint : nullptr,
                              parse_state);
}

std::string platform_name(Device device, Precision precision) {
  if (device.type != DeviceType::cpu) return device_platform(device);
  const CpuInfo cpu = cpu_info();
  const std::string lower = matmul_instructions(matmul_precision_in(precision));
  return concat_text(cpu.own_products ? "own products" : "OpenBLAS " + blas_core_name(), ", ",
                     cpu.simd_target, lower.empty() ? "" : ", ", lower);
}

void save_checkpoint(RunFolder& folder, const TrainingParts& parts, TrainerState& state, bool as_best) {
  // Equal weights give equal bytes: of the run, these files hold only the step.
  const std::map<std::string, std::string> metadata{{"step", std::to_string(state.step)}};
  TrainerState saved = state;  // a checkpoint that fails changes nothing
  saved.identity = folder.identity();
  const std::map<std::string, Tensor> training = training_tensors(parts);
  check_savable(training,
                concat_text("step ", state.step, " was not saved, and the last checkpoint is kept"));
  folder.commit([&](const OpenFolder& staging) {
    const auto add = [&](const char* name, const std::function<void(FileWriter&)>& write) {
      staging.write(name, write);
      saved.files[name] = {file_digest(staging, name), state.step};
    };
    add(model_name, [&](FileWriter& file) { write_model(file, parts.model, metadata); });
    add(optimizer_name, [&](FileWriter& file) { write_safetensors(file, {training, metadata}); });
    if (as_best) {
      const AveragedWeights averaged(parts.average);
      add(best_name, [&](FileWriter& file) { write_model(file, parts.model, metadata); });
    }
    const std::string text = trainer_state_text(saved);
    parse_trainer_state(text, "trainer_state.json, which was not saved,");
    staging.write("trainer_state.json", text);
  });
  state = std::move(saved);
}

TensorFile read_saved_file(const fs::path& path, const TrainerState& state, bool verify) {
  const auto known = state.files.find(path.filename().string());
  check(known != state.files.end(), path, " is not part of this run: trainer_state.json does not list it");
  const SavedFile& expected = known->second;
  check(path_exists(path), path, " is missing, but the run wrote it in step ", expected.step,
        "; put it back");
  const std::string bytes = read_file(path);
  TensorFile file = parse_safetensors(bytes, path.string());
  if (!verify) return file;
  // A step mismatch explains more than a digest mismatch.
  const auto found = file.metadata.find("step");
  const std::string told = found == file.metadata.end() ? "none" : found->second;
  check(told == std::to_string(expected.step), path, " is of step ", told,
        ", but trainer_state.json lists the one of step ", expected.step, ": they do not belong together",
        unverified_hint);
  check(compute_digest(bytes) == expected.digest, path,
        " was changed after it was written, or belongs to another run: its checksum is not the one in "
        "trainer_state.json",
        unverified_hint);
  return file;
}

/// Checks the best weights now, because they carry over from checkpoint to checkpoint.
static void check_best(const RunFolder& folder, TrainerState& state) {
  const auto best = state.files.find(best_name);
  if (best == state.files.end()) return;
  const fs::path path = folder.file(best_name);
  const bool is_there = path_exists(path);
  if (folder.verifies()) {
    check(is_there, path, " is missing, but the run saved its best weights there in step ", best->second.step,
          "; put it back (verify=false continues, and the next evaluation becomes the best)");
    check(file_digest(path) == best->second.digest, path,
          " was changed after it was written, or belongs to another run", unverified_hint);
  } else if (is_there) {
    best->second.digest = file_digest(path);
  } else {  // the next evaluation becomes the best
    state.files.erase(best);
    state.best_metric.reset();
  }
}

TrainerState load_checkpoint(const RunFolder& folder, const TrainingParts& parts) {
  const bool verify = folder.verifies();
  const fs::path state_path = folder.file("trainer_state.json");
  const fs::path model_path = folder.file(model_name);
  const fs::path optimizer_path = folder.file(optimizer_name);
  TrainerState state = parse_trainer_state(read_file(state_path), state_path.string(), verify);
  check(!verify || state.identity == folder.identity(), state_path, " belongs to another run",
        unverified_hint);
  const TensorFile model = read_saved_file(model_path, state, verify);
  TensorFile training = read_saved_file(optimizer_path, state, verify);
  check_same_step(model.metadata, state.step, model_path);
  check_same_step(training.metadata, state.step, optimizer_path);
  check_best(folder, state);

  const std::map<std::string, Tensor> averages = extract(training.tensors, average_prefix);
  check(averages.empty() == (parts.average == nullptr), optimizer_path,
        parts.average ? " has no moving average of the weights, but ema_decay is set"
                      : " has a moving average of the weights, but ema_decay is 0");
  load_model_state(parts.model, model.tensors, model_path.string());
  try {
    if (!parts.optimizer_state) parts.optimizer.load_state(training.tensors);
    if (parts.average) parts.average->load_state(averages);
  } catch (const Error& error) {
    fail(optimizer_path, ": ", error.what());
  }
  if (parts.optimizer_state)
    *parts.optimizer_state = std::move(training.tensors);
  else
    check(parts.optimizer.steps() == state.step, optimizer_path, " counts ", parts.optimizer.steps(),
          " steps, but trainer_state.json ", state.step);
  return state;
}

// --- a run, to read

namespace {

/// Calls `read` again if it failed and files may have moved in the meantime.
template <class Read, class Moved>
auto read_while_training(const Read& read, const Moved& moved) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    try {
      return read();
    } catch (const Error&) {
      if (!moved()) throw;
    }
  }
  return read();
}

/// The path of a file in a run, and the state that belongs to it. While the run trains, a new
/// checkpoint may appear at any moment, and files may move after they were found.
struct Place {
  std::string state;
  fs::path file;
  friend bool operator==(const Place&, const Place&) = default;
};

Place place_of(const fs::path& run, const std::string& name) {
  fs::path found;
  const std::string state = read_while_training(
      [&] {
        found = run_file(run, "trainer_state.json");
        return read_file(found);
      },
      [&] { return !found.empty() && !path_exists(found); });
  const fs::path fresh = run / "checkpoint.new" / name;
  return {state, path_exists(fresh) ? fresh : run / name};
}

std::string weights_file(std::string_view which) {
  check(which == "best" || which == "last", "a run has no \"", which, "\" weights; choose best or last");
  return which == "best" ? "best.safetensors" : "model.safetensors";
}

/// A run in the folder that its training wrote.
class FolderRun : public RunFiles {
 public:
  FolderRun(const fs::path& path, bool verify, std::string config, RunManifest manifest)
      : RunFiles(path, std::move(config), std::move(manifest)), verify_(verify) {}

  std::string text(std::string_view name) const override {
    const std::string& digest = digest_of_file(name);
    std::string content = read_file(path() / name);
    check(!verify_ || compute_digest(content) == digest, path() / name, " was changed after it was written",
          unverified_hint);
    return content;
  }

  bool has_checkpoint() const override {
    return path_exists(path() / "trainer_state.json") || path_exists(path() / "checkpoint.new");
  }

  bool has_best() const override {
    return has_checkpoint() &&
           state_in(place_of(path(), "trainer_state.json").state).files.contains("best.safetensors");
  }

  SavedFile saved(std::string_view which) const override {
    const std::string name = weights_file(which);
    const TrainerState state = state_in(place_of(path(), name).state);
    const auto found = state.files.find(name);
    check(found != state.files.end(), "the run in ", path(), " has no ", which, " weights yet");
    return found->second;
  }

  Weights weights(std::string_view which) const override {
    const std::string name = weights_file(which);
    Place place;
    Weights weights;
    read_while_training(
        [&] {
          place = place_of(path(), name);
          const TrainerState state = state_in(place.state);
          check(which == "last" || state.files.contains(name), "the run in ", path(),
                " has no best weights yet; load the last ones (weights=last)");
          check(path_exists(place.file), place.file, " is missing, but the run wrote it in step ",
                state.files.contains(name) ? state.files.at(name).step : state.step,
                which == "best" ? "; put it back, or load the last weights (weights=last)" : "; put it back");
          weights.tensors = read_saved_file(place.file, state, verify_).tensors;
          if (state.files.contains(name)) weights.digest = state.files.at(name).digest;
        },
        [&] { return place_of(path(), name) != place; });
    return weights;
  }

 private:
  TrainerState state_in(const std::string& text) const {
    const fs::path file = path() / "trainer_state.json";
    TrainerState state = parse_trainer_state(text, file.string(), verify_);
    check(!verify_ || state.identity == identity(), file, " belongs to another run", unverified_hint);
    return state;
  }

  const bool verify_;
};

}  // namespace

std::shared_ptr<const RunFiles> RunFiles::open(const fs::path& run, bool verify) {
  std::error_code unreadable;
  check(!path_exists(run) || fs::is_directory(run, unreadable), "there is no run in ", run,
        ": it is a file, and a run is a folder");
  check(path_exists(run / "config.json"), "there is no run in ", run,
        !path_exists(run) ? ": there is no such folder"
        : path_exists(run / "run.json")
            ? ": it ended before its config.json was written; train it with resume=false"
            : ": it has no config.json");
  check(path_exists(run / "run.json"), "the run in ", run,
        " has lost its run.json; put it back, or train it again");
  // In this order: a run that resumes may write a new configuration between the two reads.
  std::string config = read_file(run / "config.json");
  RunManifest manifest = parse_run_manifest(read_file(run / "run.json"), (run / "run.json").string(), verify);
  check(!verify || std::ranges::count(manifest.config, compute_digest(config)) > 0, run / "config.json",
        " was changed after it was written", unverified_hint);
  return std::make_shared<FolderRun>(run, verify, std::move(config), std::move(manifest));
}

const std::string& RunFiles::digest_of_file(std::string_view name) const {
  const auto known = manifest_.files.find(std::string(name));
  check(known != manifest_.files.end(), "the ", task(), " run in ", path_, " has no ", name);
  return known->second;
}

void RunFiles::check_files() const {
  for (const auto& [name, digest] : manifest_.files) text(name);
}

std::string RunFiles::data_digest(std::string_view part) const {
  const auto known = manifest_.data.find(std::string(part));
  return known == manifest_.data.end() ? "" : known->second;
}

void RunFiles::load_weights(Module& model, std::string_view which) const {
  load_model_state(model, weights(which).tensors, (path_ / weights_file(which)).string());
}

}  // namespace heed
