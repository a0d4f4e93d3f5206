#include "heed/training/checkpoint.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "heed/base/digest.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/core/device.h"
#include "heed/core/version.h"
#include "heed/training/model_file.h"

namespace heed {
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

/// Moves the moving averages out of the tensors of optimizer.safetensors.
std::map<std::string, Tensor> extract_averages(std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> averages;
  const std::string prefix = average_prefix;
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix);) {
    averages[it->first.substr(prefix.size())] = it->second;
    it = tensors.erase(it);
  }
  return averages;
}

/// Files of different checkpoints can only be mixed by hand; their steps reveal it.
void check_same_step(const std::map<std::string, std::string>& metadata, std::int64_t step,
                     const std::filesystem::path& path) {
  const auto found = metadata.find("step");
  check(found != metadata.end(), path, " is not part of a checkpoint: it does not say of which step it is");
  check(found->second == std::to_string(step), path, " is of step ", found->second,
        ", but trainer_state.json is of step ", step, ": the files do not belong together");
}

/// A finite number; throws for null, which is how JSON stores values that are not finite.
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

TrainerState state_of(Json object, bool verify) {
  check(object.is_object() && object.value("format", Json()) == format_name, "it has no \"format\": \"",
        format_name, "\"");
  check(object.at("format_version") != 1,
        "it was made by an older version of heed, without checksums; finish"
        " the run with that version, or start a new one");
  check(object.at("format_version") == format_version, "its format_version is ",
        object.at("format_version").dump(), ", and this version of heed reads ", format_version);
  check(take_digest(object) || !verify, "it was changed after it was written", unverified_hint);
  TrainerState state;
  state.identity = object.at("run").get<std::string>();
  state.files = files_of(object.at("files"));
  state.step = json_parts::count_in(object, "step");
  state.epoch = json_parts::count_in(object, "epoch");
  state.batch = json_parts::count_in(object, "batch");
  state.batches_done = json_parts::count_in(object, "batches_done");
  check(object.at("seed").is_number_unsigned(), "\"seed\" is not an unsigned integer");
  state.seed = object.at("seed").get<std::uint64_t>();
  state.epoch_batches = json_parts::count_in(object, "epoch_batches");
  if (!object.at("first_loss").is_null()) state.first_loss = finite(object.at("first_loss"));
  if (!object.at("best_metric").is_null()) state.best_metric = finite(object.at("best_metric"));
  if (const auto loss = object.find("best_loss"); loss != object.end() && !loss->is_null())
    state.best_loss = finite(*loss);
  state.best_step = json_parts::count_in(object, "best_step");
  state.evaluations_without_improvement = json_parts::count_in(object, "evaluations_without_improvement");
  state.elapsed_seconds = finite(object.at("elapsed_seconds"));
  state.tokens_since_record = json_parts::count_in(object, "tokens_since_record");
  check(object.at("losses_since_record").is_object(), "\"losses_since_record\" is not an object");
  for (const auto& [name, value] : object.at("losses_since_record").items()) {
    state.losses_since_record[name] = finite(value);
  }
  state.metrics_bytes = json_parts::count_in(object, "metrics_bytes");
  if (const auto scale = object.find("loss_scale"); scale != object.end())
    state.loss_scale = {finite(scale->at("scale")), json_parts::count_in(*scale, "good_steps"),
                        json_parts::count_in(*scale, "skipped")};
  state.platform = object.at("platform").get<std::string>();
  return state;
}

}  // namespace

std::string trainer_state_text(const TrainerState& state) {
  Json object{{"format", format_name}, {"format_version", format_version}, {"heed_version", version}};
  object["run"] = state.identity;
  object["files"] = Json::object();
  for (const auto& [name, file] : state.files)
    object["files"][name] = {{"digest", file.digest}, {"step", file.step}};
  object["step"] = state.step;
  object["epoch"] = state.epoch;
  object["batch"] = state.batch;
  object["batches_done"] = state.batches_done;
  object["seed"] = state.seed;
  object["epoch_batches"] = state.epoch_batches;
  object["first_loss"] = state.first_loss ? Json(*state.first_loss) : Json();
  object["best_metric"] = state.best_metric ? Json(*state.best_metric) : Json();
  object["best_loss"] = state.best_loss ? Json(*state.best_loss) : Json();
  object["best_step"] = state.best_step;
  object["evaluations_without_improvement"] = state.evaluations_without_improvement;
  object["elapsed_seconds"] = state.elapsed_seconds;
  object["tokens_since_record"] = state.tokens_since_record;
  object["losses_since_record"] = state.losses_since_record;
  object["metrics_bytes"] = state.metrics_bytes;
  object["loss_scale"] = {{"scale", state.loss_scale.scale},
                          {"good_steps", state.loss_scale.good_steps},
                          {"skipped", state.loss_scale.skipped}};
  object["platform"] = state.platform;
  try {
    add_digest(object);
    return object.dump(2) + "\n";
  } catch (const Json::exception&) {
    fail("cannot write trainer_state.json: the name of a loss is not valid UTF-8");
  }
}

TrainerState parse_trainer_state(std::string_view text, std::string_view source, bool verify) {
  try {
    return state_of(parse_json<Json>(text, "it", 4), verify);
  } catch (const Json::exception& error) {
    fail(source, " is damaged or of other software: ", error.what());
  } catch (const Error& error) {
    fail(source, " is damaged or of other software: ", error.what());
  }
}

std::string platform_name(Device device) {
  if (device.type != DeviceType::cpu) return device_platform(device);
  return concat_text("OpenBLAS ", blas_core_name(), ", ", cpu_info().simd_target);
}

namespace {

/// Forgets the best evaluation, so that the next one becomes the best.
void forget_best(TrainerState& state) {
  state.files.erase(best_name);
  state.best_metric.reset();
}

}  // namespace

void save_checkpoint(RunFolder& folder, const TrainingParts& parts, TrainerState& state, bool as_best) {
  // Equal weights give equal bytes: of the run, these files hold only the step.
  const std::map<std::string, std::string> metadata{{"step", std::to_string(state.step)}};
  TrainerState saved = state;  // a checkpoint that fails changes nothing
  std::optional<std::int64_t> lost_best;
  saved.identity = folder.identity();
  folder.commit([&](const OpenFolder& staging) {
    const auto add = [&](const char* name, const std::function<void(FileWriter&)>& write) {
      staging.write(name, write);
      saved.files[name] = {digest_of_file(staging, name), state.step};
    };
    add(model_name, [&](FileWriter& file) { write_model(file, parts.model, metadata); });
    add(optimizer_name, [&](FileWriter& file) {
      write_safetensors(file, {training_tensors(parts), metadata});
    });
    if (as_best) {
      const AveragedWeights averaged(parts.average);
      add(best_name, [&](FileWriter& file) { write_model(file, parts.model, metadata); });
    }
    if (const auto best = saved.files.find(best_name);
        best != saved.files.end() && !as_best && !folder.folder().has(best_name)) {
      lost_best = best->second.step;
      forget_best(saved);
    }
    staging.write("trainer_state.json", trainer_state_text(saved));
  });
  state = std::move(saved);
  check(!lost_best, folder.file(best_name),
        " disappeared while the run trained, and with it the weights of step ", lost_best.value_or(0),
        "; the checkpoint of step ", state.step,
        " is whole without them: --resume goes on from it, and the next evaluation is the best");
}

TensorFile read_saved_file(const std::filesystem::path& path, const TrainerState& state, bool verify) {
  const auto known = state.files.find(path.filename().string());
  check(known != state.files.end(), path, " is not part of this run: trainer_state.json does not name it");
  const SavedFile& expected = known->second;
  check(path_exists(path), path, " is missing, but the run has written it in step ", expected.step,
        "; put it back");
  const std::string bytes = read_file(path);
  TensorFile file = parse_safetensors(bytes, path.string());
  if (!verify) return file;
  // A step mismatch explains more than a digest mismatch.
  const auto found = file.metadata.find("step");
  const std::string told = found == file.metadata.end() ? "none" : found->second;
  check(told == std::to_string(expected.step), path, " is of step ", told,
        ", but trainer_state.json knows that of step ", expected.step, ": they do not belong together",
        unverified_hint);
  check(digest_of(bytes) == expected.digest, path,
        " was changed after it was written, or belongs to another run: its checksum is not the one in "
        "trainer_state.json",
        unverified_hint);
  return file;
}

namespace {

/// The best weights carry over from checkpoint to checkpoint, so check them now.
void check_best(const RunFolder& folder, TrainerState& state) {
  const auto best = state.files.find(best_name);
  if (best == state.files.end()) return;
  const std::filesystem::path path = folder.file(best_name);
  const bool is_there = path_exists(path);
  if (folder.verifies()) {
    check(is_there, path, " is missing, but the run has kept its best weights there in step ",
          best->second.step, "; put it back (--unverified goes on, and the next evaluation is the best)");
    check(digest_of_file(path) == best->second.digest, path,
          " was changed after it was written, or belongs to another run", unverified_hint);
  } else if (is_there) {
    best->second.digest = digest_of_file(path);
  } else {
    forget_best(state);
  }
}

}  // namespace

TrainerState load_checkpoint(const RunFolder& folder, const TrainingParts& parts) {
  const bool verify = folder.verifies();
  const std::filesystem::path state_path = folder.file("trainer_state.json");
  const std::filesystem::path model_path = folder.file(model_name);
  const std::filesystem::path optimizer_path = folder.file(optimizer_name);
  TrainerState state = parse_trainer_state(read_file(state_path), state_path.string(), verify);
  check(!verify || state.identity == folder.identity(), state_path, " belongs to another run",
        unverified_hint);
  const TensorFile model = read_saved_file(model_path, state, verify);
  TensorFile training = read_saved_file(optimizer_path, state, verify);
  check_same_step(model.metadata, state.step, model_path);
  check_same_step(training.metadata, state.step, optimizer_path);
  check_best(folder, state);

  const std::map<std::string, Tensor> averages = extract_averages(training.tensors);
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

}  // namespace heed
