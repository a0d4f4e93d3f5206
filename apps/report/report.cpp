#include "heed/apps/report/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>

#include "heed/apps/data/formats.h"
#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/unicode.h"

namespace heed::page {

// The files of page/ and Chart.js with its licence (cmake/page.cmake).
extern const std::string_view style, chart_library, script;

double rounded(double value) {
  char text[32];
  std::from_chars(text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr,
                  value);
  return value;
}

std::string html(const Json& page, std::string_view nonce) {
  std::string data = dumped(page);
  replace_all(data, "<", "\\u003c");  // neither "</script>" nor "<!--"
  const std::string start =
      nonce.empty() ? std::string("<script>\n") : concat_text("<script nonce=\"", nonce, "\">\n");
  return concat_text(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>heed</title><style>\n",
      style,
      "</style></head><body>\n<noscript><p>This page is drawn by its script. Without scripts, metrics.jsonl "
      "in "
      "the folder of a run has its numbers.</p></noscript>\n<script type=\"application/json\" id=\"page\">",
      data, "</script>\n", start, chart_library, "</script>\n", start, script, "</script>\n</body></html>\n");
}

namespace {

constexpr std::size_t rows_kept = 400, stretches_of_values = 480, fewest_stretches = 4;
constexpr std::size_t most_bytes = 600;  // of a text

/// The values recorded at a step, by curve number.
struct Row {
  std::int64_t step;
  double seconds;
  std::vector<std::pair<std::size_t, double>> values;
};

struct Table {
  std::vector<std::string> names;  // of the curves
  std::vector<Row> rows;
};

Table make_table(std::span<const Progress> records) {
  Table table;
  std::unordered_map<std::string, std::size_t> places;
  for (const Progress& record : records) {
    const auto add = [&](const std::string& name, double value) {
      if (!std::isfinite(value)) return;
      const auto [place, is_new] = places.try_emplace(name, table.names.size());
      if (is_new) table.names.push_back(name);
      table.rows.back().values.emplace_back(place->second, rounded(value));
    };
    if (table.rows.empty() || table.rows.back().step != record.step)
      table.rows.push_back({record.step, 0, {}});
    if (std::isfinite(record.elapsed_seconds))
      table.rows.back().seconds = std::round(10 * record.elapsed_seconds) / 10;
    for (const auto& [name, value] : record.metrics) add("validation " + name, value);
    if (record.is_evaluation()) continue;
    add("training loss", record.loss);
    for (const auto& [name, value] : record.auxiliary) add("part of the loss: " + name, value);
    add("learning rate", record.learning_rate);
    add("gradient norm", record.gradient_norm);
    add(record.unit + " per second", record.tokens_per_second);
    if (record.memory_bytes > 0) add("peak memory in MB", static_cast<double>(record.memory_bytes) / 1e6);
  }
  return table;
}

/// Returns which rows to keep: in each of `stretches` intervals, those where a curve is lowest or
/// highest.
std::vector<bool> kept_rows(const Table& table, std::size_t stretches) {
  std::vector<bool> kept(table.rows.size(), false);
  const std::size_t length = table.rows.size() / stretches + 1;
  for (std::size_t begin = 0; begin < table.rows.size(); begin += length) {
    struct Ends {
      std::pair<double, std::size_t> low, high;  // values and their rows
    };
    std::unordered_map<std::size_t, Ends> ends;  // of each curve
    for (std::size_t i = begin; i < std::min(begin + length, table.rows.size()); ++i)
      for (const auto& [curve, value] : table.rows[i].values) {
        const auto [found, is_new] = ends.try_emplace(curve, Ends{{value, i}, {value, i}});
        if (value < found->second.low.first) found->second.low = {value, i};
        if (value > found->second.high.first) found->second.high = {value, i};
      }
    for (const auto& [curve, own] : ends) kept[own.low.second] = kept[own.high.second] = true;
  }
  kept.back() = true;
  return kept;
}

/// Returns the image that a line encodes, if any.
std::optional<Images> image_in(std::string_view line) {
  if (line.empty() || line.find_first_not_of("0123456789 ") != line.npos) return std::nullopt;
  try {
    return parse_image_line(line);
  } catch (const Error&) {
    return std::nullopt;  // numbers that are a text
  }
}

}  // namespace

Json curves(std::span<const RunRecords> runs) {
  Json list = Json::array();
  for (const RunRecords& run : runs) {
    const Table table = make_table(run.records);
    std::vector<bool> kept(table.rows.size(), true);
    if (table.rows.size() > rows_kept / runs.size())
      kept = kept_rows(table, std::max(fewest_stretches, stretches_of_values / runs.size() /
                                                             std::max<std::size_t>(table.names.size(), 1)));
    Json rows = Json::array();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      Json row = {table.rows[i].step, table.rows[i].seconds};
      for (const auto& [curve, value] : table.rows[i].values) {
        row.push_back(curve);
        row.push_back(value);
      }
      rows.push_back(std::move(row));
    }
    list.push_back({{"name", run.name}, {"curves", table.names}, {"rows", std::move(rows)}});
  }
  return list;
}

Json summary(std::span<const Progress> records) {
  if (records.empty()) return Json::object();
  const Progress& last = records.back();
  Json json = {
      {"step", last.step}, {"steps", last.steps}, {"epoch", last.epoch}, {"seconds", last.elapsed_seconds}};
  const auto best =
      std::find_if(records.rbegin(), records.rend(), [](const Progress& r) { return r.is_best; });
  if (best != records.rend()) json["best"] = {{"step", best->step}, {"metrics", best->metrics}};
  return json;
}

Json line(std::string_view line) {
  if (const std::optional<Images> image = image_in(line)) {
    const auto bytes = reinterpret_cast<const char*>(image->pixels[0].data());
    return {{"image",
             {{"rows", image->rows},
              {"columns", image->columns},
              {"pixels", base64({bytes, image->pixels[0].size()})}}}};
  }
  const std::string_view text = unicode::beginning(line, most_bytes);
  Json json = {{"text", text}};
  if (text.size() < line.size()) json["bytes"] = line.size();
  return json;
}

void write_while_training(const RunFolder& run, std::span<const Progress> records) {
  const RunRecords own{"", {records.begin(), records.end()}};
  run.folder().write("report.html", html({{"title", "Training report"},
                                          {"sections",
                                           {{{"summary", summary(records)},
                                             {"remark",
                                              "Written while training: what the model does is added when "
                                              "training ends, or by heed report."}},
                                            {{"title", "Curves"}, {"curves", curves({&own, 1})}},
                                            {{"title", "Settings"}, {"configuration", run.config()}}}}}));
}

}  // namespace heed::page
