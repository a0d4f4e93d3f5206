#include "heed/training/checkpoint.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/core/cpu_info.h"
#include "heed/core/file.h"
#include "heed/core/nesting_limit.h"
#include "heed/core/version.h"
#include "heed/training/model_file.h"

namespace heed {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* format_name = "heed trainer state";
constexpr int format_version = 1;
constexpr const char* average_prefix = "moving_average.";

std::map<std::string, Tensor> training_tensors(const TrainingParts& parts) {
  std::map<std::string, Tensor> tensors = parts.optimizer.state();
  if (!parts.average) return tensors;
  for (const auto& [name, tensor] : parts.average->state()) tensors[average_prefix + name] = tensor;
  return tensors;
}

/// Takes the moving averages out of what optimizer.safetensors holds.
std::map<std::string, Tensor> extract_averages(std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> averages;
  const std::string prefix = average_prefix;
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix);) {
    averages[it->first.substr(prefix.size())] = it->second;
    it = tensors.erase(it);
  }
  return averages;
}

/// Files from different checkpoints can only meet by hand; the step tells.
void check_same_step(const std::map<std::string, std::string>& metadata, std::int64_t step,
                     const std::filesystem::path& path) {
  const auto found = metadata.find("step");
  check(found != metadata.end(), path, " is not part of a checkpoint: it does not say of which step it is");
  check(found->second == std::to_string(step), path, " is of step ", found->second,
        ", but trainer_state.json is of step ", step, ": the files do not belong together");
}

/// A finite number; throws for null, which is how JSON writes what is not finite.
double finite(const json& value) {
  const double number = value.get<double>();
  check(std::isfinite(number), "a number is not finite");
  return number;
}

std::int64_t count_of(const json& state, const char* key) {
  const json& value = state.at(key);
  check(value.is_number_integer(), "\"", key, "\" is ", value.dump(), ", not an integer");
  check(!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX, "\"", key, "\" is too large");
  check(value.get<std::int64_t>() >= 0, "\"", key, "\" is negative");
  return value.get<std::int64_t>();
}

TrainerState state_of(const json& object) {
  check(object.is_object() && object.value("format", json()) == format_name, "it has no \"format\": \"",
        format_name, "\"");
  check(object.at("format_version") == format_version, "its format_version is ",
        object.at("format_version").dump(), ", and this version of heed reads ", format_version);
  TrainerState state;
  state.step = count_of(object, "step");
  state.epoch = count_of(object, "epoch");
  state.batch = count_of(object, "batch");
  state.batches_done = count_of(object, "batches_done");
  check(object.at("seed").is_number_unsigned(), "\"seed\" is not an unsigned integer");
  state.seed = object.at("seed").get<std::uint64_t>();
  state.epoch_batches = count_of(object, "epoch_batches");
  if (!object.at("best_metric").is_null()) state.best_metric = finite(object.at("best_metric"));
  state.best_step = count_of(object, "best_step");
  state.evaluations_without_improvement = count_of(object, "evaluations_without_improvement");
  state.elapsed_seconds = finite(object.at("elapsed_seconds"));
  state.tokens_since_record = count_of(object, "tokens_since_record");
  check(object.at("losses_since_record").is_object(), "\"losses_since_record\" is not an object");
  for (const auto& [name, value] : object.at("losses_since_record").items()) {
    state.losses_since_record[name] = finite(value);
  }
  state.metrics_bytes = count_of(object, "metrics_bytes");
  if (const auto scale = object.find("loss_scale"); scale != object.end())
    state.loss_scale = {finite(scale->at("scale")), count_of(*scale, "good_steps"),
                        count_of(*scale, "skipped")};
  state.platform = object.at("platform").get<std::string>();
  return state;
}

}  // namespace

std::string trainer_state_text(const TrainerState& state) {
  json object{{"format", format_name}, {"format_version", format_version}, {"heed_version", version}};
  object["step"] = state.step;
  object["epoch"] = state.epoch;
  object["batch"] = state.batch;
  object["batches_done"] = state.batches_done;
  object["seed"] = state.seed;
  object["epoch_batches"] = state.epoch_batches;
  object["best_metric"] = state.best_metric ? json(*state.best_metric) : json();
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
  return object.dump(2) + "\n";
}

TrainerState parse_trainer_state(std::string_view text, std::string_view source) {
  try {
    return state_of(json::parse(text.begin(), text.end(), nesting_limit(4, "it")));
  } catch (const json::exception& error) {
    fail(source, " is damaged or of other software: ", error.what());
  } catch (const Error& error) {
    fail(source, " is damaged or of other software: ", error.what());
  }
}

std::string platform_name(Device device) {
  if (device.type != DeviceType::cpu) return name_of(device);
  return concat_text("OpenBLAS ", blas_core_name(), ", ", cpu_info().simd_target);
}

void save_checkpoint(RunFolder& folder, const TrainingParts& parts, const TrainerState& state, bool as_best) {
  const std::map<std::string, std::string> metadata{{"step", std::to_string(state.step)}};
  folder.commit([&](const std::filesystem::path& staging) {
    save_model(parts.model, staging / "model.safetensors", metadata);
    save_safetensors(staging / "optimizer.safetensors", {training_tensors(parts), metadata});
    if (as_best) {
      const AveragedWeights averaged(parts.average);
      save_model(parts.model, staging / "best.safetensors", metadata);
    }
    write_file_atomically(staging / "trainer_state.json", trainer_state_text(state));
  });
}

TrainerState load_checkpoint(const RunFolder& folder, const TrainingParts& parts) {
  const std::filesystem::path state_path = folder.file("trainer_state.json");
  const std::filesystem::path model_path = folder.file("model.safetensors");
  const std::filesystem::path optimizer_path = folder.file("optimizer.safetensors");
  const TrainerState state = parse_trainer_state(read_file(state_path), state_path.string());
  const TensorFile model = load_safetensors(model_path);
  TensorFile training = load_safetensors(optimizer_path);
  check_same_step(model.metadata, state.step, model_path);
  check_same_step(training.metadata, state.step, optimizer_path);

  const std::map<std::string, Tensor> averages = extract_averages(training.tensors);
  check(averages.empty() == (parts.average == nullptr), optimizer_path,
        parts.average ? " has no moving average of the weights, but ema_decay is set"
                      : " has a moving average of the weights, but ema_decay is 0");
  load_model_state(parts.model, model.tensors, model_path.string());
  try {
    parts.optimizer.load_state(training.tensors);
    if (parts.average) parts.average->load_state(averages);
  } catch (const Error& error) {
    fail(optimizer_path, ": ", error.what());
  }
  check(parts.optimizer.steps() == state.step, optimizer_path, " counts ", parts.optimizer.steps(),
        " steps, but trainer_state.json ", state.step);
  return state;
}

}  // namespace heed
