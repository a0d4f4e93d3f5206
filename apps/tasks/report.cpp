#include "heed/apps/tasks/report.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "heed/apps/tasks/capture.h"
#include "heed/apps/tasks/labelled.h"
#include "heed/apps/tasks/run.h"
#include "heed/base/error.h"
#include "heed/base/open_folder.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/data/idx.h"
#include "heed/training/report.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

constexpr std::size_t most_in_matrix = 40;  // classes; of more the pairs that are confused most are listed
constexpr std::size_t most_bytes = 600;     // of a text

std::string percent(double share) {
  char text[32];
  const PlainNumbers plain;
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

/// A grey image as a BMP file: header, a palette of 256 greys, the rows from below, each of a multiple of
/// four bytes.
std::string bitmap(const Images& image) {
  const auto rows = static_cast<std::size_t>(image.rows), columns = static_cast<std::size_t>(image.columns);
  const std::size_t row_bytes = (columns + 3) / 4 * 4, start = 14 + 40 + 256 * 4, bytes = rows * row_bytes;
  constexpr std::size_t planes_and_bits = 8 << 16 | 1, dots_per_meter = 2835;
  std::string file = "BM";
  const auto add = [&file](std::size_t word) {  // little-endian
    for (int i = 0; i < 4; ++i, word >>= 8) file += static_cast<char>(word & 0xFF);
  };
  for (const std::size_t word : {start + bytes, 0UL, start, 40UL, columns, rows, planes_and_bits, 0UL, bytes,
                                 dots_per_meter, dots_per_meter, 256UL, 0UL})
    add(word);
  for (std::size_t grey = 0; grey < 256; ++grey) add(grey * 0x010101);
  for (std::size_t row = rows; row-- > 0;) {
    for (std::size_t column = 0; column < columns; ++column)
      file += static_cast<char>(image.pixels[0][row * columns + column]);
    file.append(row_bytes - columns, '\0');
  }
  return file;
}

/// The image of a line, where it is one.
std::optional<Images> image_in(std::string_view line) {
  if (line.empty() || line.find_first_not_of("0123456789 ") != line.npos) return std::nullopt;
  try {
    return image_of_line(line);
  } catch (const Error&) {
    return std::nullopt;  // numbers that are a text
  }
}

std::string matrix_html(const std::vector<std::string>& names, const Json& confusion) {
  std::size_t letters = 0;
  for (const std::string& name : names) letters += name.size();
  const bool numbered = letters > 60;
  std::string table = concat_text(
      "<p class=\"muted\">A row for each class that was expected, a column for each that was predicted; the "
      "shade is "
      "the share of its row.</p>\n<div class=\"wide\"><table class=\"confusion\"><tr><th></th><th "
      "class=\"side\" "
      "colspan=\"",
      names.size(), "\">predicted</th></tr>\n<tr><th class=\"side\">expected</th>");
  for (std::size_t i = 0; i < names.size(); ++i)
    table += concat_text("<th title=\"", html_text(names[i]), "\">",
                         numbered ? std::to_string(i + 1) : html_text(names[i]), "</th>");
  table += "</tr>\n";
  for (std::size_t i = 0; i < names.size(); ++i) {
    double all = 0;
    for (const Json& count : confusion[i]) all += count.get<double>();
    table += concat_text("<tr><th class=\"class\">", numbered ? concat_text(i + 1, ' ') : std::string(),
                         html_text(names[i]), "</th>");
    for (std::size_t j = 0; j < names.size(); ++j) {
      const auto count = confusion[i][j].get<std::int64_t>();
      const double share = all > 0 ? static_cast<double>(count) / all : 0;
      table += concat_text("<td", i == j ? " class=\"right\"" : "");
      if (count > 0)
        table +=
            concat_text(" style=\"--w:", short_number(0.75 * share), "\" title=\"", percent(share), "\"");
      table += concat_text(">", count, "</td>");
    }
    table += "</tr>\n";
  }
  return table + "</table></div>\n";
}

/// The pairs of classes that are taken for each other most often.
std::string pairs_html(const std::vector<std::string>& names, const Json& confusion) {
  const std::vector<Confusion> pairs = confusions_in(confusion);
  std::vector<std::vector<std::string>> rows = {{"expected", "predicted", "texts"}};
  for (std::size_t i = 0; i < std::min<std::size_t>(pairs.size(), 20); ++i)
    rows.push_back({names[pairs[i].expected], names[pairs[i].predicted], std::to_string(pairs[i].count)});
  return concat_text("<p class=\"muted\">", names.size(), " classes are too many for a matrix; the ",
                     rows.size() - 1, " pairs that are confused most:</p>\n", table_html(rows));
}

}  // namespace

std::string line_html(std::string_view line) {
  if (const std::optional<Images> image = image_in(line))
    return concat_text("<img class=\"image\" alt=\"image of ", image->rows, " x ", image->columns,
                       "\" src=\"data:image/bmp;base64,", base64(bitmap(*image)), "\">");
  const std::string text(unicode::beginning(line, most_bytes));
  if (const std::size_t tab = text.find('\t'); tab != text.npos)
    return concat_text(html_text(text.substr(0, tab)), " <span class=\"muted\">|</span> ",
                       html_text(text.substr(tab + 1)), text.size() < line.size() ? " …" : "");
  return concat_text(html_text(text), text.size() < line.size()
                                          ? concat_text(" … <small>(", line.size(), " bytes)</small>")
                                          : "");
}

std::string metrics_text(const Measurement& measurement) {
  std::string text;
  for (const Metric& metric : measurement.metrics)
    text += concat_text(text.empty() ? "" : ", ", metric_title(metric.name), ' ', short_number(metric.value));
  return text;
}

std::string classes_html(const Measurement& measurement) {
  const Json json = Json::parse(measurement.json);
  if (!json.contains("classes")) return "";
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> rows = {{"class", "texts", "precision", "recall", "F1"}};
  for (const auto& [name, one] : json["classes"].items()) {
    names.push_back(name);
    rows.push_back({name, std::to_string(one["texts"].get<std::int64_t>()),
                    percent(one["precision"].get<double>()), percent(one["recall"].get<double>()),
                    percent(one["f1"].get<double>())});
  }
  std::string html = "<h3>Classes</h3>\n" + table_html(rows);
  if (!json.contains("confusion")) return html;
  return html + "<h3>Confusion</h3>\n" +
         (names.size() > most_in_matrix ? pairs_html(names, json["confusion"])
                                        : matrix_html(names, json["confusion"]));
}

std::string mistakes_html(const Measurement& measurement, std::size_t most) {
  const std::size_t shown = std::min(most, measurement.mistakes.size());
  std::string list =
      concat_text("<h3>Mistakes <small>", shown < measurement.mistakes.size() ? "the most confident of " : "",
                  measurement.mistakes.size(), " in ", measurement.count, "</small></h3>\n");
  if (shown == 0) return list;
  list += "<ol class=\"mistakes\">\n";
  for (std::size_t i = 0; i < shown; ++i) {
    const Mistake& one = measurement.mistakes[i];
    list += concat_text("<li><div class=\"labels\">predicted <b>", html_text(one.predicted), "</b> (",
                        percent(one.probability), "), expected <b>", html_text(one.expected), "</b></div>",
                        line_html(one.text), "</li>\n");
  }
  return list + "</ol>\n";
}

namespace {

namespace fs = std::filesystem;

// A report stays below 500 KB, of which Chart.js is 200: a cell of a map is 1.4 bytes.
constexpr std::size_t examples_shown = 3, mistakes_shown = 20, answers_shown = 12, layers_in_histograms = 12;
constexpr std::int64_t tokens_shown = 40, maps_shown = 18, heads_shown = 8, cells_shown = 24'000;

/// A run as its files tell of it, without its model.
struct RecordedRun {
  std::string name;
  const TaskKind& kind;
  RunFiles files;
  Settings settings;
  std::vector<Progress> records;
};

RecordedRun recorded_run(const fs::path& folder, const ReportOptions& options) {
  RunFiles files = RunFiles::open(folder, options.verify);
  const TaskKind& kind = options.kind ? *options.kind : task_kind(files.task());
  Settings settings = settings_of_run(kind, files);
  fs::path name = fs::absolute(folder).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return {name.filename().string(), kind, std::move(files), std::move(settings),
          read_metrics(folder / "metrics.jsonl")};
}

/// A value as people write it: texts without quotes.
std::string value_text(const Settings& settings, const std::string& name) {
  const auto value = nlohmann::ordered_json::parse(settings.json(name));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The settings that differ from the defaults, then all.
std::string configuration_html(const RecordedRun& run) {
  const Settings defaults = run.kind.settings(run.kind.names_data(run.settings));
  Rows rows = {{"setting", "value", "default"}};
  for (const Setting& one : run.settings.declared())
    if (run.settings.json(one.name) != defaults.json(one.name))
      rows.push_back({one.name, value_text(run.settings, one.name), value_text(defaults, one.name)});
  return (rows.size() > 1 ? table_html(rows, true) : std::string("<p>All settings are the defaults.</p>\n")) +
         details_html("All settings", "<pre>" + html_text(run.files.config()) + "</pre>");
}

/// A part of the page under its title; says why where it cannot be made, and nothing where there is nothing
/// to show.
std::string section(const std::string& title, const std::function<std::string()>& make) {
  std::string body;
  try {
    body = make();
  } catch (const DeviceLost&) {
    throw;
  } catch (const Error& error) {
    body = concat_text("<p class=\"muted\">Not shown: ", html_text(error.what()), "</p>\n");
  }
  return body.empty() ? "" : concat_text("<h2>", html_text(title), "</h2>\n", body);
}

/// What a model does: it is opened once for all parts.
class ModelSections {
 public:
  ModelSections(const fs::path& folder, const RecordedRun& recorded, const ReportOptions& options)
      : folder_(folder), recorded_(recorded), options_(options) {}

  /// On the test part; a task that tells classes apart is measured without one, too.
  std::string quality() {
    Run& run = opened();
    const bool has_classes = run.learner().files().contains("classes.json");
    const std::string part = run.has_part("test") || !has_classes ? "test" : "valid";
    if (!run.has_part(part))
      return has_classes ? "<p class=\"muted\">The run has no held-out examples to measure on.</p>\n" : "";
    const Measurement measurement = run.measure(part);
    has_data_ = true;
    if (options_.measured) options_.measured(part, measurement);
    const std::string html = concat_text("<p>On the ", part, " part, ", measurement.count,
                                         " examples: ", html_text(metrics_text(measurement)), ".</p>\n");
    return has_classes ? html + classes_html(measurement) + mistakes_html(measurement, mistakes_shown) : html;
  }

  std::string written() {
    std::string list;
    for (const Written& one : with_data().learner().written_examples(answers_shown))
      list += concat_text("<li>", line_html(one.source), "<div class=\"labels\">expected <b>",
                          line_html(one.expected), "</b></div><div class=\"labels\">written <b>",
                          line_html(one.answer), "</b></div></li>\n");
    return list.empty() ? "" : "<ol class=\"mistakes\">\n" + list + "</ol>\n";
  }

  std::string examples() {
    Run& run = with_data();
    lines_ = run.learner().example_lines(examples_shown);
    if (lines_.empty()) return "";
    const std::vector<Prediction> answers = run.predict(lines_, {&capture_, 0});
    if (std::ranges::none_of(answers, [](const Prediction& one) { return one.error.empty(); }))
      fail(answers.front().error);
    return report_maps(capture_);
  }

  /// Of the attention weights, before training and now.
  std::string histograms() {
    if (lines_.empty()) return "";
    CaptureFile before;
    Run::open(folder_, run_options("initial")).predict(lines_, {&before, 0});
    const std::string html =
        weight_histograms_html(before.content(), capture_.content(), layers_in_histograms);
    if (html.empty()) return "";
    return "<p>How often a weight between two tokens of the examples above has which size, in the model that "
           "training began with and in this one. Weights of zero are not counted; the last bar holds all "
           "larger ones.</p>\n" +
           html;
  }

 private:
  Run& opened() {
    if (!run_) run_.emplace(Run::open(folder_, run_options("")));
    return *run_;
  }

  Run& with_data() {
    Run& run = opened();
    if (!has_data_) run.learner().read_data();
    has_data_ = true;
    return run;
  }

  RunOptions run_options(const std::string& weights) const {
    RunOptions options{
        .device = options_.device, .weights = weights, .verify = options_.verify, .kind = options_.kind};
    // Of a model that writes on: what is looked at is how it reads.
    if (recorded_.settings.has("generation.tokens")) options.settings.emplace_back("generation.tokens=1");
    return options;
  }

  const fs::path& folder_;
  const RecordedRun& recorded_;
  const ReportOptions& options_;
  std::optional<Run> run_;
  bool has_data_ = false;
  std::vector<std::string> lines_;
  CaptureFile capture_;
};

// --- several runs

/// What each run came to, by its records.
std::string outcomes_html(std::span<const RecordedRun> runs) {
  std::vector<std::string> metrics;
  for (const RecordedRun& run : runs)
    for (const Progress& record : run.records)
      for (const auto& [name, value] : record.metrics)
        if (std::ranges::count(metrics, name) == 0) metrics.push_back(name);
  Rows rows = {{"run", "task", "steps", "training time", "peak memory"}};
  for (const std::string& name : metrics) rows[0].push_back("best " + name);
  for (const RecordedRun& run : runs) {
    std::int64_t memory = 0;
    std::map<std::string, double> best;
    for (const Progress& record : run.records) {
      memory = std::max(memory, record.memory_bytes);
      if (record.is_best) best = {record.metrics.begin(), record.metrics.end()};
    }
    const Progress last = run.records.empty() ? Progress() : run.records.back();
    std::vector<std::string>& row = rows.emplace_back();
    row = {run.name, std::string(run.kind.name), std::to_string(last.step),
           run.records.empty() ? "" : duration_text(last.elapsed_seconds),
           memory > 0 ? short_number(static_cast<double>(memory) / 1e6) + " MB" : ""};
    for (const std::string& name : metrics)
      row.push_back(best.contains(name) ? short_number(best.at(name)) : "");
  }
  return table_html(rows) +
         "<p class=\"muted\"><small>Metrics are those of the evaluation that chose the best "
         "weights.</small></p>\n";
}

/// The settings that are not the same in all runs.
std::string differences_html(std::span<const RecordedRun> runs) {
  Rows rows = {{"setting"}};
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
  return rows.size() > 1 ? table_html(rows, true) : "<p>All settings are the same.</p>\n";
}

}  // namespace

std::string report_maps(const CaptureFile& capture) {
  return capture_html(capture, {2 * examples_shown, tokens_shown, maps_shown, heads_shown, cells_shown});
}

RecordedParts recorded_parts(const fs::path& folder, const ReportOptions& options) {
  const RecordedRun run = recorded_run(folder, options);
  const RunRecords records{run.name, run.records};
  return {run.name, run.kind, summary_html(run.records), curves_html({&records, 1}),
          section("Settings", [&] { return configuration_html(run); })};
}

std::string model_parts(const fs::path& folder, const ReportOptions& options) {
  const RecordedRun run = recorded_run(folder, options);
  ModelSections model(folder, run, options);
  std::string parts = section("Quality", [&] { return model.quality(); });
  parts += section("What it writes for held-out examples", [&] { return model.written(); });
  parts += section("What the model looks at", [&] { return model.examples(); });
  return parts + section("Attention weights before and after training", [&] { return model.histograms(); });
}

std::string run_report(const fs::path& folder, const ReportOptions& options) {
  const RecordedParts run = recorded_parts(folder, options);
  return page_html(
      concat_text(run.name, ": ", run.kind.name),
      concat_text("<h1>", html_text(run.name), " <small>", run.kind.name, "</small></h1>\n", run.summary,
                  "<h2>Curves</h2>\n", run.curves, run.settings, model_parts(folder, options)));
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
  std::vector<RunRecords> records;
  for (const RecordedRun& run : runs) records.push_back({run.name, run.records});
  const std::string title = concat_text(runs.size(), " runs side by side");
  std::string page = concat_text("<h1>", title, "</h1>\n");
  page += section("What they came to", [&] { return outcomes_html(runs); });
  page += section("Settings in which they differ", [&] { return differences_html(runs); });
  page += section("Curves", [&] { return curves_html(records); });
  return page_html(title, page);
}

}  // namespace heed
