#include "heed/apps/compare/comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/tasks/run.h"
#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/core/device.h"
#include "heed/core/profile.h"
#include "heed/training/checkpoint.h"
#include "heed/training/progress.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::size_t most_cells = 10'000;
constexpr const char* run_name = "run";
constexpr const char* log_name = "log.txt";
constexpr const char* result_name = "result.json";

/// A folder name: letters, digits and a few signs stay, everything else becomes "_".
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

/// The values of a point of the grid; the last setting varies fastest.
std::vector<std::string> point_of(const std::vector<ComparedSetting>& settings, std::size_t point) {
  std::vector<std::string> values(settings.size());
  for (std::size_t i = settings.size(); i-- > 0; point /= settings[i].values.size())
    values[i] = settings[i].values[point % settings[i].values.size()];
  return values;
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

/// Visits what result.json has under the names of the fields.
void for_each_member(auto& result, const auto& visit) {
  visit("failure", result.failure);
  visit("part", result.part);
  visit("data", result.data);
  visit("parameters", result.parameters);
  visit("steps", result.steps);
  visit("step_gflops", result.step_gflops);
  visit("training_seconds", result.training_seconds);
  visit("seconds_per_example", result.seconds_per_example);
  visit("peak_bytes", result.peak_bytes);
}

Json json_of(const CellResult& result) {
  Json json = {{"settings", Json::parse(result.settings)}, {"metrics", Json::array()}};
  for_each_member(result, [&](const char* name, const auto& value) { json[name] = value; });
  for (const Metric& one : result.metrics)
    json["metrics"].push_back(
        {{"name", one.name}, {"value", one.value}, {"larger_is_better", one.larger_is_better}});
  json["examples"] = {{"metric", result.examples.metric},
                      {"combine", result.examples.combine},
                      {"rows", result.examples.rows}};
  return json;
}

/// A number; null stands for one that is not finite.
double number_in(const Json& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

CellResult result_of(const Json& json) {
  CellResult result;
  result.settings = json.at("settings").dump();
  for_each_member(result, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  for (const Json& one : json.at("metrics"))
    result.metrics.push_back({one.at("name"), number_in(one.at("value")), one.at("larger_is_better")});
  const Json& examples = json.at("examples");
  result.examples = {examples.at("metric"), examples.at("combine"), {}};
  for (const Json& row : examples.at("rows")) {
    std::vector<double>& read = result.examples.rows.emplace_back();
    for (const Json& one : row) read.push_back(number_in(one));
  }
  return result;
}

/// Nothing if there is none or it cannot be read: the cell's run is then measured again.
std::optional<CellResult> result_in(const fs::path& folder) {
  const fs::path path = folder / result_name;
  if (!path_exists(path)) return std::nullopt;
  try {
    return result_of(parse_json<Json>(read_file(path), path.string()));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Throws if a cell's folder was made with other settings than the cell's, and names them.
void check_same_settings(const ComparisonCell& cell, const std::string& there, const fs::path& folder) {
  std::vector<KeyDifference> differences = key_differences(there, cell.settings.json());
  std::erase_if(differences,
                [](const KeyDifference& one) { return one.key == "threads" || one.key == "device"; });
  if (differences.empty()) return;
  std::vector<std::string> texts;
  for (const auto& [key, before, now] : differences)
    texts.push_back(concat_text(key, '=', before, " (now ", now, ")"));
  // Such a setting only affects how a run is used: it needs a new measurement, but no new training.
  const bool measuring_alone = std::ranges::all_of(differences, [&](const KeyDifference& one) {
    return cell.settings.has(one.key) && cell.settings.setting(one.key).changes == Changes::at_any_time;
  });
  fail(folder.string(), " was made with ", listed(texts, 3), ": compare in another folder, or remove ",
       measuring_alone ? "its result.json to measure it again" : "that folder to train it again");
}

/// Throws if the run in a cell's folder has another end than the cell: it would resume from the end of
/// another schedule. The run folder itself refuses damage, and everything else that a run cannot resume with.
void check_schedule(const ComparisonCell& cell, const fs::path& folder) {
  std::vector<KeyDifference> differences;
  try {
    differences =
        key_differences(read_file(folder / run_name / "config.json"), cell.settings.json(), "the run");
  } catch (const Error&) {  // there is no run, or whoever opens it says so
  }
  for (const auto& [key, before, now] : differences)
    if ((key == "training.steps" || key == "training.epochs" || key == "training.patience") &&
        before != "not set")
      fail((folder / run_name).string(), " was made with ", key, '=', before, " (now ", now,
           "): compare in another folder, or remove ", folder.string(), " to train it again");
}

/// The peak over all processes that trained a run.
std::int64_t peak_bytes_of(const fs::path& run) {
  std::int64_t peak = 0;
  for (const Progress& record : read_metrics(run / "metrics.jsonl"))
    peak = std::max(peak, record.memory_bytes);
  return peak;
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
  const std::string chosen = attention_settings(plan.kind.stacks).front();
  if (!attentions.empty() && std::ranges::count(names, chosen) > 0)
    throw SettingsError(concat_text("--set ", chosen, " and --attention name the same: give one"));
  if (std::ranges::count(names, "seed") > 0)
    throw SettingsError("seeds cannot be compared: give them with --seeds");
  for (const std::int64_t seed : plan.seeds) seeds.push_back(std::to_string(seed));
  check_distinct("seeds", seeds);
  if (std::ranges::count(attentions, "") > 0)
    throw SettingsError("--attention: a name is empty; give names with commas between them");
  if (attentions.empty()) attentions.emplace_back();

  std::size_t points = 1;
  for (const ComparedSetting& setting : plan.settings)
    points = std::min(points * setting.values.size(), most_cells + 1);
  if (attentions.size() * points * plan.seeds.size() > most_cells)
    throw SettingsError(concat_text("a comparison has at most ", most_cells, " cells"));

  std::vector<ComparisonCell> cells;
  std::set<std::string> folders;
  for (const std::string& attention : attentions)
    for (std::size_t point = 0; point < points; ++point) {
      const std::vector<std::string> values = point_of(plan.settings, point);
      Settings settings = plan.base;
      std::string choice = attention;
      // As in the programs, an attention and its options override the other settings.
      const auto assign = [&](bool of_attention) {
        for (std::size_t i = 0; i < values.size(); ++i)
          if (belongs_to_attention(plan.kind.stacks, names[i]) == of_attention)
            settings.assign(names[i] + "=" + values[i]);
      };
      assign(false);
      if (!attention.empty()) choose_attentions(settings, plan.kind.stacks, {.attention = attention});
      assign(true);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (plan.settings[i].values.size() > 1)
          choice += concat_text(choice.empty() ? "" : ", ", names[i], "=", values[i]);
      if (choice.empty()) choice = "as set";
      for (const std::int64_t seed : plan.seeds) {
        settings.set("seed", std::to_string(seed), "seeds");
        std::string name = folder_name(concat_text(choice, "-seed", seed));
        while (!folders.insert(name).second) name += "+";
        cells.push_back({choice, name, seed, settings});
      }
    }
  return cells;
}

std::optional<CellResult> run_cell(const TaskKind& kind, const ComparisonCell& cell, const fs::path& folder,
                                   const TrainerCallbacks& callbacks) {
  create_folders(folder);
  const OpenFolder opened(folder);
  opened.find_folder(run_name);  // a link to another run is refused
  const fs::path run_folder = folder / run_name;
  CellResult result;
  result.settings = cell.settings.json();
  result.failure = "it was not trained to its end";  // kept, with the settings, if interrupted
  write_result(result, opened);
  result.failure.clear();
  const Device device = device_of(cell.settings);
  reset_peak_memory(device);
  const bool goes_on = path_exists(run_folder / "config.json");
  const TrainResult trained =
      train(kind, cell.settings,
            {.folder = run_folder, .resume = goes_on, .callbacks = callbacks, .report = false});
  if (!trained.finished) return std::nullopt;
  result.steps = trained.step;
  result.training_seconds = trained.seconds;
  result.peak_bytes =
      std::max(static_cast<std::int64_t>(memory_stats(device).peak_bytes), peak_bytes_of(run_folder));

  Run run = Run::open(run_folder, {.kind = &kind});
  result.parameters = run.learner().model().parameter_count();
  result.part = run.has_part("test") ? "test" : "valid";
  result.data = run.data_digest(result.part);
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
  const bool is_done = result && result->failure.empty();
  if (is_done || (result && path_exists(folder / run_name / "config.json")))
    check_same_settings(cell, result->settings, folder);
  if (is_done) return result;
  check_schedule(cell, folder);
  return std::nullopt;
}

std::map<std::string, std::string> ComparedData::digests(const ComparisonCell& cell) {
  Json key = Json::parse(cell.settings.json());
  for (const char* const name : {"model", "training", "tokenizer", "threads", "device", "precision"})
    key.erase(name);
  const auto [known, is_new] = known_.try_emplace(key.dump());
  if (is_new) {
    const std::unique_ptr<Learner> learner = kind_.make(cell.settings);
    learner->read_data();
    known->second = learner->data_digests();
  }
  return known->second;
}

void ComparedData::check_measurable(const ComparisonCell& cell) {
  const auto parts = digests(cell);
  if (!parts.contains("test") && !parts.contains("valid"))
    throw SettingsError(
        "the data has no test part and no valid part to compare on: name a file for one, or hold out a "
        "share of data.file (data.test, data.valid, data.test_fraction, data.valid_fraction)");
}

void ComparedData::check_same(const ComparisonCell& cell, const fs::path& folder) {
  const RunFiles run = RunFiles::open(folder / run_name);
  for (const auto& [part, digest] : digests(cell))
    check(run.data_digest(part) == digest, folder, ": its data has changed since (", part,
          "), so it cannot be compared with the others: remove that folder, or compare in another one");
}

void check_comparison_folder(const fs::path& folder) {
  static const std::set<std::string> tables = {"table.txt", "table.md", "table.jsonl", "report.html"};
  if (!path_exists(folder)) return;
  check(fs::is_directory(folder), "--out ", folder, " is a file, but a comparison needs a folder");
  bool has_cells = false, has_tables = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_table = tables.contains(name), is_temporary = name.starts_with(".heed-");
    const bool is_cell = fs::is_directory(entry.symlink_status()) &&
                         (fs::is_empty(entry.path()) || path_exists(entry.path() / log_name) ||
                          path_exists(entry.path() / run_name) || path_exists(entry.path() / result_name));
    check(is_table || is_temporary || is_cell, "--out ", folder, " has ", entry.path().filename(),
          " in it, which is not part of a comparison: name a folder that is new or empty");
    has_cells = has_cells || is_cell;
    has_tables = has_tables || is_table;
  }
  check(has_cells || !has_tables, "--out ", folder,
        " has tables but none of a comparison's cells: name a folder that is new or empty");
}

CellResult read_failure(const fs::path& folder) {
  std::optional<CellResult> result = result_in(folder);
  if (result && !result->failure.empty()) return std::move(*result);
  CellResult none;
  none.failure = "it ended without a result; see " + (folder / "log.txt").string();
  return none;
}

void write_result(const CellResult& result, const OpenFolder& cell) {
  cell.write(result_name, dumped(json_of(result)) + "\n");
}

}  // namespace heed
