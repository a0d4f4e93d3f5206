#include "heed/apps/compare/comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "heed/apps/tasks/example_files.h"
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

constexpr const char* run_name = "run";
constexpr const char* log_name = "log.txt";
constexpr const char* result_name = "result.json";
constexpr const char* data_name = "data";  // examples that were in memory

/// Returns the GFLOP of the matrix products in one training step.
double gflops_of_step(Task& task) {
  task.prepare_training();
  Context context = Context::train(0, 1);
  start_profile();
  const Loss loss = task.loss(0, 0, context);
  const Tensor more = context.auxiliary_loss();
  backward(more.defined() ? loss.sum + more : loss.sum);
  stop_profile();
  double flops = 0;
  for (const ProfileRow& row : profile_rows()) flops += row.flops;
  return flops / 1e9;
}

/// Visits the members of result.json with their names.
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

Json metrics_json(std::span<const Metric> metrics) {
  Json json = Json::array();
  for (const Metric& one : metrics)
    json.push_back({{"name", one.name}, {"value", one.value}, {"larger_is_better", one.larger_is_better}});
  return json;
}

Json json_of(const CellResult& result) {
  Json json = {{"settings", Json::parse(result.settings)},
               {"metrics", metrics_json(result.metrics)},
               {"validation", metrics_json(result.validation)}};
  for_each_member(result, [&](const char* name, const auto& value) { json[name] = value; });
  json["examples"] = {{"metric", result.examples.metric},
                      {"combine", result.examples.combine},
                      {"rows", result.examples.rows}};
  return json;
}

/// Reads a number; null means that it is not finite.
double number_in(const Json& json) {
  return json.is_null() ? std::nan("") : json.get<double>();
}

CellResult parse_result(const Json& json) {
  CellResult result;
  result.settings = json.at("settings").dump();
  for_each_member(result, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  for (const auto& [name, metrics] :
       {std::pair("metrics", &result.metrics), {"validation", &result.validation}})
    for (const Json& one : json.at(name))
      metrics->push_back({one.at("name"), number_in(one.at("value")), one.at("larger_is_better")});
  const Json& examples = json.at("examples");
  result.examples = {examples.at("metric"), examples.at("combine"), {}};
  for (const Json& row : examples.at("rows")) {
    std::vector<double>& read = result.examples.rows.emplace_back();
    for (const Json& one : row) read.push_back(number_in(one));
  }
  return result;
}

/// Reads the result; nothing if there is none or it is unreadable, so that the cell's run is
/// evaluated again.
std::optional<CellResult> result_in(const fs::path& folder) {
  const fs::path path = folder / result_name;
  if (!path_exists(path)) return std::nullopt;
  try {
    return parse_result(parse_json<Json>(read_file(path), path.string()));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Throws an Error naming the differences if a cell's folder was made with other settings than the
/// cell's.
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

/// Throws if the run in a cell's folder has another number of steps than the cell, since it would resume
/// with another schedule. The run folder itself refuses everything else that a run cannot resume with.
void check_schedule(const ComparisonCell& cell, const fs::path& folder) {
  const fs::path run = folder / run_name;
  std::vector<KeyDifference> differences;
  try {
    differences = key_differences(read_file(run / "config.json"), cell.settings.json(), "the run");
  } catch (const Error&) {  // there is no run, or whoever opens it says so
  }
  for (const auto& [key, before, now] : differences)
    if ((key == "training.steps" || key == "training.epochs" || key == "training.patience") &&
        before != "not set")
      fail(run.string(), " was made with ", key, '=', before, " (now ", now,
           "): compare in another folder, or remove ", folder.string(), " to train it again");
}

/// Returns the peak memory over all processes that trained a run.
std::int64_t read_peak_bytes(const fs::path& run) {
  std::int64_t peak = 0;
  for (const Progress& record : read_metrics(run / "metrics.jsonl"))
    peak = std::max(peak, record.memory_bytes);
  return peak;
}

}  // namespace

std::optional<CellResult> run_cell(const TaskEntry& entry, const ComparisonCell& cell, const fs::path& folder,
                                   const TrainerCallbacks& callbacks) {
  create_folders(folder);
  const OpenFolder opened(folder);
  opened.find_folder(run_name);  // a link to another run is refused
  const fs::path run_folder = folder / run_name;
  CellResult result;
  result.settings = cell.settings.json();
  result.failure = "its training was not finished";  // kept, with the settings, if interrupted
  write_result(result, opened);
  result.failure.clear();
  const Device device = device_of(cell.settings);
  reset_peak_memory(device);
  const bool goes_on = path_exists(run_folder / "config.json");
  const TrainResult trained =
      train(entry, cell.settings,
            {.folder = run_folder, .resume = goes_on, .callbacks = callbacks, .report = false});
  if (!trained.finished) return std::nullopt;
  result.steps = trained.step;
  result.training_seconds = trained.seconds;
  result.peak_bytes =
      std::max(static_cast<std::int64_t>(memory_stats(device).peak_bytes), read_peak_bytes(run_folder));

  Run run = Run::open(run_folder, {.entry = &entry});
  result.parameters = run.task().model().parameter_count();
  result.part = !cell.part.empty() ? cell.part : run.has_part("test") ? "test" : "valid";
  result.data = run.data_digest(result.part);
  try {
    const StopCheck stop(callbacks.stop_requested);
    const auto start = std::chrono::steady_clock::now();
    Measurement measurement = run.measure(result.part);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    result.metrics = std::move(measurement.metrics);
    result.examples = std::move(measurement.examples);
    if (result.part == "valid")
      result.validation = result.metrics;
    else if (run.has_part("valid"))
      result.validation = run.measure("valid").metrics;
    result.seconds_per_example =
        taken.count() / static_cast<double>(std::max<std::int64_t>(measurement.count, 1));
    result.step_gflops = gflops_of_step(run.task());
  } catch (const Interrupted&) {
    return std::nullopt;
  }
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

namespace {

/// The digests of the parts of the data of cells, read once for cells with the same data.
class ComparedData {
 public:
  explicit ComparedData(const TaskEntry& entry) : entry_(entry) {}
  void check_measurable(const ComparisonCell& cell);
  void check_same(const ComparisonCell& cell, const fs::path& folder);

 private:
  const std::map<std::string, std::string>& digests(const ComparisonCell& cell);

  const TaskEntry& entry_;
  std::map<std::string, std::map<std::string, std::string>> known_;  // by the settings of the data
};

const std::map<std::string, std::string>& ComparedData::digests(const ComparisonCell& cell) {
  Json key = Json::parse(cell.settings.json());
  for (const char* const name : {"model", "training", "tokenizer", "threads", "device", "precision"})
    key.erase(name);
  const auto [known, is_new] = known_.try_emplace(key.dump());
  if (is_new) {
    const std::unique_ptr<Task> task = entry_.make(cell.settings);
    task->read_data();
    known->second = task->data_digests();
  }
  return known->second;
}

void ComparedData::check_measurable(const ComparisonCell& cell) {
  const auto& parts = digests(cell);
  if (!cell.part.empty() && !parts.contains(cell.part))
    throw SettingsError(concat_text(
        "the data has no ", cell.part,
        " part, which halving needs: hold out a share (data.valid_fraction), or name a file (data.valid)"));
  if (!parts.contains("test") && !parts.contains("valid"))
    throw SettingsError(
        "the data has no test part and no valid part to compare on: name a file for one, or hold out a "
        "share of data.file (data.test, data.valid, data.test_fraction, data.valid_fraction)");
}

void ComparedData::check_same(const ComparisonCell& cell, const fs::path& folder) {
  const std::shared_ptr<const RunFiles> run = open_run(folder / run_name);
  for (const auto& [part, digest] : digests(cell))
    check(run->data_digest(part) == digest, folder, ": its data has changed since (", part,
          "), so it cannot be compared with the others: remove that folder, or compare in another one");
}

}  // namespace

std::vector<std::size_t> cells_to_train(const TaskEntry& entry, std::span<const ComparisonCell> cells,
                                        const fs::path& folder,
                                        std::vector<std::optional<CellResult>>& results) {
  ComparedData data(entry);
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    results[i] = read_result(cells[i], folder / cells[i].name);
    if (results[i])
      data.check_same(cells[i], folder / cells[i].name);
    else
      waiting.push_back(i);
  }
  if (!waiting.empty()) data.check_measurable(cells[waiting.front()]);
  return waiting;
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

void keep_examples(const TaskEntry& entry, std::span<const Examples> examples, const fs::path& folder,
                   Settings& settings) {
  if (examples.empty()) return;
  const ExampleFiles files(entry, examples);
  files.set_paths(settings);
  rebase_data_paths(settings, files.folder(), folder / data_name);
  create_folders(folder);
  const OpenFolder data = OpenFolder(folder).make_folder(data_name);
  for (const auto& [name, content] : files.files()) {
    const fs::path path = folder / data_name / name;
    if (!path_exists(path))
      data.write(name, content);
    else
      check(read_file(path) == content, path, " holds different examples: compare in another folder");
  }
}

CellTrainer sequential_trainer(const TaskEntry& entry, const fs::path& folder,
                               const TrainerCallbacks& callbacks) {
  return [&entry, folder, callbacks](std::span<const ComparisonCell> cells) {
    std::vector<std::optional<CellResult>> results(cells.size());
    for (const std::size_t i : cells_to_train(entry, cells, folder, results)) {
      if (callbacks.stop_requested && callbacks.stop_requested()) break;
      if (callbacks.message) callbacks.message(concat_text(cells[i].choice, ", seed ", cells[i].seed));
      try {
        results[i] = run_cell(entry, cells[i], folder / cells[i].name, callbacks);
      } catch (const DeviceLost&) {
        throw;
      } catch (const Interrupted&) {
        throw;
      } catch (const std::exception& error) {
        CellResult& failed = results[i].emplace();
        failed.settings = cells[i].settings.json();
        failed.failure = error.what();
      }
      if (!results[i]) break;
      write_result(*results[i], OpenFolder(folder / cells[i].name));
    }
    return results;
  };
}

namespace {

/// Throws an Error for a folder that contains anything but cells and tables of a comparison.
void check_comparison_folder(const fs::path& folder) {
  static const std::set<std::string> tables = {"table.txt", "table.md", "table.jsonl", "report.html"};
  if (!path_exists(folder)) return;
  check(fs::is_directory(folder), "the folder ", folder, " is a file, but a comparison needs a folder");
  bool has_cells = false, has_tables = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_folder = fs::is_directory(entry.symlink_status()), is_data = is_folder && name == data_name;
    const bool is_table = tables.contains(name), is_temporary = name.starts_with(".heed-");
    const auto holds = [&](const char* part) { return path_exists(entry.path() / part); };
    const bool is_cell =
        is_folder && !is_data &&
        (fs::is_empty(entry.path()) || holds(log_name) || holds(run_name) || holds(result_name));
    check(is_table || is_temporary || is_data || is_cell, "the folder ", folder, " has ",
          entry.path().filename(),
          " in it, which is not part of a comparison: name a folder that is new or empty");
    has_cells |= is_cell;
    has_tables |= is_table;
  }
  check(has_cells || !has_tables, "the folder ", folder,
        " has tables but no cells of a comparison: name a folder that is new or empty");
}

void check_cell(const TaskEntry& entry, const ComparisonCell& cell) {
  entry.make(cell.settings)->check_settings();
  if (wants_all_folds(cell.settings))
    throw SettingsError("a cell is one training: choose folds (data.folds) with data.fold=1,2,...");
  const auto training = cell.settings.read<TrainerOptions>("training");
  if (training.steps == 0 && training.epochs == 0)
    throw SettingsError("training.steps is 0: there is nothing to compare");
}

/// Returns the cells of the choices that a round keeps, best first.
std::vector<ComparisonCell> cells_of_best(std::span<const ComparisonCell> cells,
                                          std::span<const ComparisonRow> rows) {
  std::vector<ComparisonCell> kept;
  std::vector<std::string> best = best_choices(rows);
  best.resize(std::min(best.size(), kept_choices(rows.size())));
  for (const std::string& choice : best)
    std::ranges::copy_if(cells, std::back_inserter(kept),
                         [&](const ComparisonCell& cell) { return cell.choice == choice; });
  return kept;
}

}  // namespace

Comparison compare(const ComparisonPlan& plan, const fs::path& folder, const CellTrainer& train_cells,
                   const std::function<void(std::string_view)>& say) {
  Comparison found{plan_cells(plan)};
  for (const ComparisonCell& cell : found.cells)  // report what cannot be trained before training anything
    check_cell(plan.entry, cell);
  check_comparison_folder(folder);
  const auto is_measured = [](const auto& one) { return one.has_value(); };
  std::vector<ComparisonRow> failed;  // in short trainings
  if (plan.halving) {
    const std::size_t choices = found.cells.size() / plan.seeds.size();
    for (const std::int64_t steps :
         halving_steps(choices, plan.base.read<TrainerOptions>("training").steps)) {
      const std::vector<ComparisonCell> shorter = shortened(found.cells, steps);
      say(concat_text(shorter.size() / plan.seeds.size(), " choices, ", steps, " steps each"));
      const auto results = train_cells(shorter);
      if (!std::ranges::all_of(results, is_measured)) return found;
      const std::vector<ComparisonRow> rows = comparison_rows(shorter, results);
      for (const ComparisonRow& row : rows)
        for (const std::string& failure : row.failures)
          failed.push_back({.choice = row.choice,
                            .results = {},
                            .failures = {concat_text(failure, " (in a training of ", steps, " steps)")},
                            .difference = {},
                            .values = row.values});
      found.cells = cells_of_best(found.cells, rows);
      check(!found.cells.empty(), "no choice could be measured after ", steps, " steps; their folders in ",
            folder, " say why");
    }
  }
  const auto results = train_cells(found.cells);
  found.finished = std::ranges::all_of(results, is_measured);
  found.rows = comparison_rows(found.cells, results);
  std::vector<std::vector<Progress>> progress;
  for (const ComparisonRow& row : found.rows)
    progress.push_back(
        read_metrics(folder / std::ranges::find(found.cells, row.choice, &ComparisonCell::choice)->name /
                     "run/metrics.jsonl"));
  for (ComparisonRow& row : failed) {
    const auto known = std::ranges::find(found.rows, row.choice, &ComparisonRow::choice);
    if (known == found.rows.end())
      found.rows.push_back(std::move(row));
    else
      known->failures.push_back(row.failures.front());
  }
  progress.resize(found.rows.size());
  std::vector<ComparisonCell> best_first;
  for (const std::size_t i : best_cells(found.cells, found.rows, results))
    best_first.push_back(found.cells[i]);
  found.cells = std::move(best_first);
  const OpenFolder opened(folder);
  opened.write("table.txt", comparison_text(found.rows));
  opened.write("table.md", comparison_markdown(found.rows));
  opened.write("table.jsonl", comparison_json_lines(found.rows));
  opened.write("report.html",
               comparison_html(concat_text("Comparison: ", plan.entry.name), found.rows, progress));
  return found;
}

}  // namespace heed
