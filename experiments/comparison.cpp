#include "heed/experiments/comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/file.h"
#include "heed/core/json_text.h"
#include "heed/core/memory_stats.h"
#include "heed/core/profile.h"
#include "heed/tasks/recipe.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t most_cells = 10'000;
constexpr const char* run_name = "run";
constexpr const char* result_name = "result.json";

/// A name for a folder: letters, digits and a few signs stay, what else there is becomes "_".
std::string folder_name(const std::string& text) {
  std::string name;
  for (const char c : text)
    name += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    std::string_view("=.-+").find(c) != std::string_view::npos
                ? c
                : '_';
  return name.substr(0, 150);
}

void check_distinct(const char* what, const std::vector<std::string>& values) {
  std::set<std::string> seen;
  for (const std::string& value : values)
    if (!seen.insert(value).second) throw SettingsError(concat_text(what, ": ", value, " is named twice"));
}

/// Every choice of the grid, the last setting the fastest.
std::vector<std::vector<std::size_t>> grid(const std::vector<ComparedSetting>& settings) {
  std::vector<std::vector<std::size_t>> points = {{}};
  for (const ComparedSetting& setting : settings) {
    std::vector<std::vector<std::size_t>> longer;
    for (const auto& point : points)
      for (std::size_t i = 0; i < setting.values.size(); ++i) {
        longer.push_back(point);
        longer.back().push_back(i);
      }
    points = std::move(longer);
    if (points.size() > most_cells)
      throw SettingsError(concat_text("a comparison has at most ", most_cells, " cells"));
  }
  return points;
}

/// The matrix products of one training step.
double gflops_of_step(Learner& learner) {
  learner.prepare_training();
  Context context = Context::train(0, 1);
  start_profile();
  const Loss loss = learner.loss(0, 0, context);
  const Tensor more = context.auxiliary_loss();
  backward(more.defined() ? loss.sum + more : loss.sum);
  stop_profile();
  double flops = 0;
  for (const ProfileRow& row : profile_rows()) flops += row.flops;
  return flops / 1e9;
}

/// The settings that a result depends on.
Json without_runtime(const std::string& settings) {
  Json json = Json::parse(settings);
  for (const char* name : {"threads", "device"}) json.erase(name);
  return json;
}

Json json_of(const CellResult& result) {
  Json metrics = Json::array();
  for (const Metric& one : result.metrics)
    metrics.push_back({{"name", one.name}, {"value", one.value}, {"larger_is_better", one.larger_is_better}});
  return {{"settings", Json::parse(result.settings)},
          {"failure", result.failure},
          {"part", result.part},
          {"metrics", std::move(metrics)},
          {"parameters", result.parameters},
          {"steps", result.steps},
          {"step_gflops", result.step_gflops},
          {"training_seconds", result.training_seconds},
          {"seconds_per_example", result.seconds_per_example},
          {"peak_bytes", result.peak_bytes},
          {"examples",
           {{"metric", result.examples.metric},
            {"combine", result.examples.combine},
            {"rows", result.examples.rows}}}};
}

CellResult result_of(const Json& json) {
  CellResult result;
  result.settings = json.at("settings").dump();
  result.failure = json.at("failure");
  result.part = json.at("part");
  for (const Json& one : json.at("metrics"))
    result.metrics.push_back({one.at("name"),
                              one.at("value").is_null() ? std::nan("") : one.at("value").get<double>(),
                              one.at("larger_is_better")});
  result.parameters = json.at("parameters");
  result.steps = json.at("steps");
  result.step_gflops = json.at("step_gflops");
  result.training_seconds = json.at("training_seconds");
  result.seconds_per_example = json.at("seconds_per_example");
  result.peak_bytes = json.at("peak_bytes");
  const Json& examples = json.at("examples");
  result.examples = {examples.at("metric"), examples.at("combine"),
                     examples.at("rows").get<std::vector<std::vector<double>>>()};
  return result;
}

std::optional<CellResult> result_in(const fs::path& folder) {
  const fs::path path = folder / result_name;
  if (!path_exists(path)) return std::nullopt;
  try {
    return result_of(parse_json<Json>(read_file(path), path.string()));
  } catch (const Json::exception& error) {
    fail(path.string(), ": is no result of a comparison: ", error.what(), "; remove it to train again");
  }
}

}  // namespace

std::vector<ComparisonCell> cells_of(const ComparisonPlan& plan) {
  check_distinct("attentions", plan.attentions);
  std::vector<std::string> attentions = plan.attentions, names, seeds;
  for (const ComparedSetting& setting : plan.settings) {
    names.push_back(setting.name);
    check_distinct(setting.name.c_str(), setting.values);
  }
  check_distinct("settings", names);
  for (const std::int64_t seed : plan.seeds) seeds.push_back(std::to_string(seed));
  check_distinct("seeds", seeds);
  if (attentions.empty()) attentions.emplace_back();

  std::vector<ComparisonCell> cells;
  std::set<std::string> folders;
  for (const std::string& attention : attentions)
    for (const auto& point : grid(plan.settings)) {
      Settings settings = plan.base;
      std::string choice = attention;
      // As programs have it: an attention and its options lie over the other settings.
      const auto assign = [&](bool of_attention) {
        for (std::size_t i = 0; i < point.size(); ++i) {
          const ComparedSetting& setting = plan.settings[i];
          if (belongs_to_attention(plan.kind.stacks, setting.name) == of_attention)
            settings.assign(setting.name + "=" + setting.values[point[i]]);
        }
      };
      assign(false);
      if (!attention.empty()) choose_attentions(settings, plan.kind.stacks, {.attention = attention});
      assign(true);
      for (std::size_t i = 0; i < point.size(); ++i)
        if (plan.settings[i].values.size() > 1)
          choice += concat_text(choice.empty() ? "" : ", ", plan.settings[i].name, "=",
                                plan.settings[i].values[point[i]]);
      if (choice.empty()) choice = "as set";
      for (const std::int64_t seed : plan.seeds) {
        settings.set("seed", std::to_string(seed), "seeds");
        std::string name = folder_name(concat_text(choice, "-seed", seed));
        while (!folders.insert(name).second) name += "+";
        cells.push_back({choice, name, seed, settings});
        if (cells.size() > most_cells)
          throw SettingsError(concat_text("a comparison has at most ", most_cells, " cells"));
      }
    }
  return cells;
}

std::optional<CellResult> run_cell(const TaskKind& kind, const ComparisonCell& cell, const fs::path& folder,
                                   const TrainerCallbacks& callbacks) {
  create_folders(folder);
  const fs::path run_folder = folder / run_name;
  CellResult result;
  result.settings = cell.settings.json();
  const Device device = apply_runtime(cell.settings);
  reset_peak_memory(device);
  const TrainResult trained =
      train_run(kind, cell.settings, {run_folder, path_exists(run_folder / "config.json"), true, callbacks});
  if (!trained.finished) return std::nullopt;
  result.steps = trained.step;
  result.training_seconds = trained.seconds;
  result.peak_bytes = static_cast<std::int64_t>(memory_stats(device).peak_bytes);

  Run run = Run::open(run_folder, {.kind = &kind});
  result.parameters = run.learner().model().parameter_count();
  result.part = run.has_part("test") ? "test" : "valid";
  const auto start = std::chrono::steady_clock::now();
  Measurement measurement = run.measure(result.part);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  result.metrics = std::move(measurement.metrics);
  result.examples = std::move(measurement.examples);
  result.seconds_per_example =
      taken.count() / static_cast<double>(std::max<std::int64_t>(measurement.count, 1));
  result.step_gflops = gflops_of_step(run.learner());
  return result;
}

std::optional<CellResult> read_result(const ComparisonCell& cell, const fs::path& folder) {
  std::optional<CellResult> result = result_in(folder);
  if (!result || !result->failure.empty()) return std::nullopt;
  const std::string now = cell.settings.json();
  compare_configurations(result->settings, now, free_settings(), folder.string());
  if (without_runtime(result->settings) != without_runtime(now)) return std::nullopt;
  return result;
}

CellResult read_failure(const fs::path& folder) {
  std::optional<CellResult> result = result_in(folder);
  if (result && !result->failure.empty()) return std::move(*result);
  CellResult none;
  none.failure = "it ended without a result; see " + (folder / "log.txt").string();
  return none;
}

void write_result(const CellResult& result, const fs::path& folder) {
  create_folders(folder);
  write_file_atomically(folder / result_name, json_of(result).dump() + "\n");
}

}  // namespace heed
