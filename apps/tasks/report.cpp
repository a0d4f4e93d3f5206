#include "heed/apps/tasks/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "heed/apps/report/report.h"
#include "heed/apps/tasks/class_heads.h"
#include "heed/apps/tasks/run.h"
#include "heed/apps/tasks/text_to_text.h"
#include "heed/base/json.h"
#include "heed/base/open_folder.h"
#include "heed/base/plain_numbers.h"

namespace heed {
namespace {

using Json = page::Json;
namespace fs = std::filesystem;

// A report stays below 500 KB, of which Chart.js is 200: a cell of a map is 1.4 bytes.
constexpr std::size_t examples_shown = 3, mistakes_shown = 20, answers_shown = 12, classes_in_matrix = 40;
constexpr std::int64_t tokens_shown = 40, maps_shown = 18, heads_shown = 8, cells_shown = 24'000;

/// Formats four significant digits; 23510, not 2.351e+04.
std::string short_number(double value) {
  return formatted(std::abs(value) < 10'000 ? "%.4g" : "%.0f", value);
}

/// A run as described by its files, without its model.
struct RecordedRun {
  std::string name;
  const TaskEntry& entry;
  std::shared_ptr<const RunFiles> files;
  Settings settings;
  std::vector<Progress> records;
};

RecordedRun recorded_run(const fs::path& folder, const ReportOptions& options) {
  std::shared_ptr<const RunFiles> files = open_run(folder, options.verify);
  const TaskEntry& entry = options.entry ? *options.entry : task_entry(files->task());
  Settings settings = run_settings(entry, *files);
  fs::path name = fs::absolute(folder).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return {name.filename().string(), entry, std::move(files), std::move(settings),
          read_metrics(folder / "metrics.jsonl")};
}

/// Formats a value for people: texts without quotes.
std::string value_text(const Settings& settings, const std::string& name) {
  const Json value = Json::parse(settings.setting(name).value);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Returns the settings that differ from the defaults, then all.
Json settings_of(const RecordedRun& run) {
  const Settings defaults = run.entry.settings(run.entry.names_data(run.settings));
  Json section, rows = Json::array({{"setting", "value", "default"}});
  for (const Setting& one : run.settings.declared())
    if (run.settings.json(one.name) != defaults.json(one.name))
      rows.push_back(
          Json::array({one.name, value_text(run.settings, one.name), value_text(defaults, one.name)}));
  if (rows.size() > 1)
    section["words"] = std::move(rows);
  else
    section["text"] = "All settings have their defaults.";
  section["configuration"] = run.files->config();
  return section;
}

/// Returns the part of the page about classes, from the JSON of a measurement (ClassHead::measurement()
/// in apps/tasks/class_heads.h).
Json classes_of(const Measurement& measurement) {
  const Json json = Json::parse(measurement.json);
  if (!json.contains("classes")) return {};  // of words, not of whole texts
  Json figures = Json::array(), names = Json::array();
  for (const auto& [name, one] : json.at("classes").items()) {
    names.push_back(name);
    figures.push_back(Json::array({name, one["texts"], one["precision"], one["recall"], one["f1"]}));
  }
  Json classes = {{"figures", figures}};
  if (!json.contains("confusion")) return classes;
  if (names.size() <= classes_in_matrix) {
    classes["confusion"] = json["confusion"];
    return classes;
  }
  classes["pairs"] = Json::array();  // the pairs that are taken for each other most often
  for (const Confusion& one : confusions_in(json["confusion"]))
    if (classes["pairs"].size() < mistakes_shown)
      classes["pairs"].push_back(Json::array({names[one.expected], names[one.predicted], one.count}));
  return classes;
}

Json list_mistakes(const Measurement& measurement) {
  Json shown = Json::array();
  for (const Mistake& one : measurement.mistakes)
    if (shown.size() < mistakes_shown)
      shown.push_back({{"predicted", one.predicted},
                       {"probability", page::rounded(one.probability)},
                       {"expected", one.expected},
                       {"line", page::line(one.text)}});
  return {{"all", measurement.mistakes.size()}, {"count", measurement.count}, {"shown", std::move(shown)}};
}

/// Adds a section with the members that `make` returns. If it throws, the section states the
/// reason; if there is nothing to show, there is no section.
void add_section(Json& sections, const char* title, const std::function<Json()>& make) {
  Json section = {{"title", title}};
  try {
    const Json members = make();
    if (members.empty()) return;
    section.update(members);
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    section["not_shown"] = error.what();
  }
  sections.push_back(std::move(section));
}

/// Returns a section with one member; null if the value is null or empty.
Json member(const char* name, Json value) {
  return value.empty() ? Json() : Json{{name, std::move(value)}};
}

Json examples_of_report(const CaptureFile& capture) {
  return page::examples(capture, {2 * examples_shown, tokens_shown, maps_shown, heads_shown, cells_shown});
}

/// The parts of the page that need the model, which is opened once for all of them.
class ModelSections {
 public:
  ModelSections(const fs::path& folder, const RecordedRun& recorded, const ReportOptions& options)
      : folder_(folder), recorded_(recorded), options_(options) {}

  /// Evaluates on the test part; without one, only a classifier is evaluated, on the validation
  /// part.
  Json quality() {
    Run& run = opened();
    const bool has_classes = run.task().files().contains("classes.json");
    const std::string part = run.has_part("test") || !has_classes ? "test" : "valid";
    if (!run.has_part(part))
      return has_classes ? Json{{"remark", "The run has no held-out examples to evaluate on."}} : Json();
    const Measurement measurement = run.measure(part);
    has_data_ = true;
    if (options_.measured) options_.measured(part, measurement);
    if (part == "test" && !measurement.metrics.empty())
      score_ = concat_text("test: ", metric_title(measurement.metrics.front().name), ' ',
                           short_number(measurement.metrics.front().value));
    Json metrics = Json::array();
    for (const Metric& metric : measurement.metrics)
      metrics.push_back(Json::array({metric_title(metric.name), page::rounded(metric.value)}));
    Json quality = {{"measured", {{"part", part}, {"count", measurement.count}, {"metrics", metrics}}}};
    if (!has_classes) return quality;
    if (Json classes = classes_of(measurement); !classes.empty()) quality["classes"] = std::move(classes);
    mistakes_ = list_mistakes(measurement);
    return quality;
  }

  /// Returns the mistakes found by quality(); empty if answers cannot be wrong.
  const Json& mistakes() const { return mistakes_; }
  /// Returns "test: accuracy 0.95" after quality() has measured it; "": there is no test part.
  const std::string& score() const { return score_; }

  Json written() {
    Json list = Json::array();
    Run& run = with_data();
    const auto* const task = dynamic_cast<TextToTextTask*>(&run.task());
    if (!task) return {};
    const ParallelText pairs = task->example_pairs(answers_shown);
    const std::vector<Prediction> answers = run.task().predict(pairs.source.strings(), {});
    for (std::size_t i = 0; i < answers.size(); ++i)
      list.push_back({{"source", page::line(pairs.source[i])},
                      {"expected", page::line(pairs.target[i])},
                      {"answer", page::line(answers[i].text)}});
    return member("written", std::move(list));
  }

  Json examples() {
    Run& run = with_data();
    const std::vector<std::string> lines = run.task().example_lines(examples_shown);
    if (lines.empty()) return {};
    CaptureFile capture;
    const std::vector<Prediction> answers = run.predict(lines, {.capture = &capture, .return_errors = true});
    if (std::ranges::none_of(answers, [](const Prediction& one) { return one.error.empty(); }))
      fail(answers.front().error);
    return member("examples", examples_of_report(capture));
  }

 private:
  Run& opened() {
    if (run_) return *run_;
    RunOptions options{.device = options_.device, .verify = options_.verify, .entry = options_.entry};
    // For a generative model, the attention maps show how it reads the line, not how it continues
    // it.
    if (recorded_.settings.has("generation.tokens")) options.settings.emplace_back("generation.tokens=1");
    return run_.emplace(Run::open(folder_, options));
  }

  Run& with_data() {
    Run& run = opened();
    if (!has_data_) run.task().read_data();
    has_data_ = true;
    return run;
  }

  const fs::path& folder_;
  const RecordedRun& recorded_;
  const ReportOptions& options_;
  std::optional<Run> run_;
  bool has_data_ = false;
  std::string score_;
  Json mistakes_;
};

// --- several runs

/// Returns the results of each run, from its records.
Json list_outcomes(std::span<const RecordedRun> runs) {
  std::vector<std::string> metrics;
  for (const RecordedRun& run : runs)
    for (const Progress& record : run.records)
      for (const auto& [name, value] : record.metrics)
        if (std::ranges::count(metrics, name) == 0) metrics.push_back(name);
  std::vector<std::vector<std::string>> rows = {{"run", "task", "steps", "training time", "peak memory"}};
  for (const std::string& name : metrics) rows[0].push_back(name + " (kept)");
  for (const RecordedRun& run : runs) {
    std::int64_t memory = 0;
    std::map<std::string, double> best;
    for (const Progress& record : run.records) {
      memory = std::max(memory, record.memory_bytes);
      if (record.is_best) best = {record.metrics.begin(), record.metrics.end()};
    }
    const Progress last = run.records.empty() ? Progress() : run.records.back();
    std::vector<std::string>& row = rows.emplace_back();
    row = {run.name, std::string(run.entry.name), std::to_string(last.step),
           run.records.empty() ? "" : duration_text(last.elapsed_seconds),
           memory > 0 ? short_number(static_cast<double>(memory) / 1e6) + " MB" : ""};
    for (const std::string& name : metrics)
      row.push_back(best.contains(name) ? short_number(best.at(name)) : "");
  }
  return {{"table", rows}, {"remark", "Metrics of the evaluation that selected the best weights."}};
}

/// Returns the settings that differ between runs.
Json list_differences(std::span<const RecordedRun> runs) {
  std::vector<std::vector<std::string>> rows = {{"setting"}};
  std::vector<std::string> names;
  for (const RecordedRun& run : runs) {
    rows[0].push_back(run.name);
    for (const Setting& one : run.settings.declared())
      if (std::ranges::count(names, one.name) == 0) names.push_back(one.name);
  }
  for (const std::string& name : names) {
    std::vector<std::string> row = {name};
    for (const RecordedRun& run : runs)
      row.push_back(run.settings.has(name) ? value_text(run.settings, name) : "");
    if (std::ranges::any_of(row.begin() + 2, row.end(),
                            [&](const std::string& value) { return value != row[1]; }))
      rows.push_back(std::move(row));
  }
  return rows.size() > 1 ? Json{{"words", rows}} : Json{{"text", "All settings are the same."}};
}

Json recorded_json(const RecordedRun& run) {
  const page::RunRecords records{run.name, run.records};
  Json settings = Json::array();
  add_section(settings, "Settings", [&] { return settings_of(run); });
  return {{"name", run.name},
          {"task", run.entry.name},
          {"summary", page::summary(run.records)},
          {"curves", page::curves({&records, 1})},
          {"settings", std::move(settings)}};
}

void add_quality(Json& sections, ModelSections& model) {
  add_section(sections, "Quality", [&] { return model.quality(); });
}

/// Call it after add_quality().
void add_inside(Json& sections, ModelSections& model) {
  if (!model.mistakes().empty()) sections.push_back({{"mistakes", model.mistakes()}});
  add_section(sections, "Outputs for held-out examples", [&] { return model.written(); });
  add_section(sections, "What the model looks at", [&] { return model.examples(); });
}

}  // namespace

std::string metrics_text(const Measurement& measurement) {
  std::string text;
  for (const Metric& metric : measurement.metrics)
    text += concat_text(text.empty() ? "" : ", ", metric_title(metric.name), ' ', short_number(metric.value));
  return text;
}

std::string report_maps(const CaptureFile& capture) {
  return dumped(examples_of_report(capture));
}

std::string recorded_parts(const fs::path& folder, const ReportOptions& options) {
  return dumped(recorded_json(recorded_run(folder, options)));
}

std::string model_parts(const fs::path& folder, const ReportOptions& options) {
  Json sections = Json::array();
  const RecordedRun run = recorded_run(folder, options);
  ModelSections model(folder, run, options);
  add_quality(sections, model);
  add_inside(sections, model);
  return dumped(sections);
}

std::string run_report(const fs::path& folder, const ReportOptions& options) {
  const RecordedRun run = recorded_run(folder, options);
  const Json recorded = recorded_json(run);
  ModelSections model(folder, run, options);
  Json sections = {{{"summary", recorded["summary"]}}};
  add_quality(sections, model);
  sections.push_back({{"title", "Curves"}, {"curves", recorded["curves"]}});
  for (const Json& one : recorded["settings"]) sections.push_back(one);
  add_inside(sections, model);
  return page::html({{"title", run.name},
                     {"task", run.entry.name},
                     {"score", model.score()},
                     {"sections", std::move(sections)}});
}

fs::path write_run_report(const fs::path& folder, const ReportOptions& options) {
  const std::string page = run_report(folder, options);  // which says what is wrong if there is no run
  OpenFolder(folder).write("report.html", page);
  return folder / "report.html";
}

std::string runs_report(std::span<const fs::path> folders, const ReportOptions& options) {
  std::vector<RecordedRun> runs;
  for (const fs::path& folder : folders) runs.push_back(recorded_run(folder, options));
  std::map<std::string, int> names;
  for (const RecordedRun& run : runs) ++names[run.name];
  for (std::size_t i = 0; i < runs.size(); ++i)  // folders of one name are told apart by their paths
    if (names[runs[i].name] > 1) runs[i].name = folders[i].string();
  std::vector<page::RunRecords> records;
  for (const RecordedRun& run : runs) records.push_back({run.name, run.records});
  Json sections = Json::array();
  add_section(sections, "Results", [&] { return list_outcomes(runs); });
  add_section(sections, "Settings that differ", [&] { return list_differences(runs); });
  sections.push_back({{"title", "Curves"}, {"curves", page::curves(records)}});
  return page::html(
      {{"title", concat_text(runs.size(), " runs side by side")}, {"sections", std::move(sections)}});
}

}  // namespace heed
