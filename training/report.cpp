#include "heed/training/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/plain_numbers.h"
#include "heed/data/text_file.h"
#include "heed/training/page.h"

namespace heed {
namespace {

constexpr std::size_t points_in_chart = 400, fewest_points = 8, rows_of_numbers = 40;

bool is_whole(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15;
}

/// A finite number as charts and tables have it; whole ones, such as steps, keep all their digits.
std::string digits(double value) {
  if (is_whole(value)) return concat_text(static_cast<long long>(value));
  char text[32];
  const PlainNumbers plain;
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// Keeps the lowest and highest point of each group, so that long runs give small files: at most about
/// `most`.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, std::size_t most) {
  const std::size_t group = points.size() <= most ? 1 : 2 * points.size() / most + 1;
  if (group == 1) return points;
  std::vector<ChartPoint> kept;
  for (std::size_t i = 0; i < points.size(); i += group) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(std::min(i + group, points.size()));
    auto [low, high] = std::minmax_element(begin, end, [](ChartPoint a, ChartPoint b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  if (kept.back().x != points.back().x) kept.push_back(points.back());
  return kept;
}

std::string chart_html(const Chart& chart) {
  using Json = nlohmann::ordered_json;
  constexpr const char* kinds[] = {"lines", "marks", "bars"};
  const auto number = [](double value) -> Json {
    if (is_whole(value)) return static_cast<std::int64_t>(value);
    const std::string text = digits(value);
    std::from_chars(text.data(), text.data() + text.size(), value);  // rounded
    return value;
  };
  const std::size_t most =
      std::max(fewest_points, points_in_chart / std::max<std::size_t>(chart.series.size(), 1));
  Json all = Json::array();
  for (const ChartSeries& one : chart.series) {
    Json points = Json::array();
    for (const ChartPoint& at : chart.kind == ChartKind::lines ? thinned(one.points, most) : one.points) {
      points.push_back({number(at.x), number(at.y)});
      if (chart.kind == ChartKind::lines) points.back().push_back(number(std::round(10 * at.seconds) / 10));
    }
    all.push_back({{"name", one.name}, {"points", std::move(points)}});
  }
  const Json data = {{"kind", kinds[static_cast<int>(chart.kind)]},
                     {"x", chart.x},
                     {"y", chart.y},
                     {"series", std::move(all)}};
  std::string html = "<figure class=\"chart\"><figcaption>" + html_text(chart.title);
  if (!chart.remark.empty()) html += " <small>" + html_text(chart.remark) + "</small>";
  return html + "</figcaption>\n<div class=\"canvas\"><canvas role=\"img\" aria-label=\"" +
         html_text(chart.title) + "\"></canvas></div>\n" + script_json(dumped(data)) + "</figure>\n";
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string short_number(double value) {
  char text[32];
  const PlainNumbers plain;
  std::snprintf(text, sizeof text, "%.4g", value);
  return std::abs(value) < 10'000 ? text : digits(std::strtod(text, nullptr));
}

std::string script_json(std::string json) {
  replace_all(json, "<", "\\u003c");  // neither "</script>" nor "<!--"
  return "<script type=\"application/json\">" + json + "</script>\n";
}

std::string charts_html(std::span<const Chart> charts, bool one_legend) {
  std::string html = one_legend ? "<div class=\"charts one-legend\">\n" : "<div class=\"charts\">\n";
  for (const Chart& chart : charts) html += chart_html(chart);
  return html + "</div>\n";
}

std::string table_html(std::span<const std::vector<std::string>> rows, bool is_words) {
  std::string table =
      is_words ? "<div class=\"wide\"><table class=\"words\">\n" : "<div class=\"wide\"><table>\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string_view tag = i == 0 ? "th" : "td";
    table += "<tr>";
    for (const std::string& cell : rows[i])
      table += concat_text('<', tag, '>', html_text(cell), "</", tag, '>');
    table += "</tr>\n";
  }
  return table + "</table></div>\n";
}

std::string details_html(std::string_view title, std::string_view content) {
  return concat_text("<details><summary>", html_text(title), "</summary>\n", content, "</details>\n");
}

namespace {

/// `start`: the tag that begins a script.
std::string page_with(std::string_view title, std::string_view body, std::string_view start,
                      std::initializer_list<std::string_view> scripts) {
  std::string page = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>)";
  page.append(html_text(title))
      .append("</title><style>\n")
      .append(page::style)
      .append("</style></head><body>\n");
  page.append(body);
  for (const std::string_view script : scripts)
    if (!script.empty()) page.append(start).append("\n").append(script).append("</script>\n");
  return page.append("</body></html>\n");
}

}  // namespace

std::string page_html(std::string_view title, std::string_view body) {
  const bool has_charts = body.find("<figure class=\"chart\">") != body.npos,
             has_maps = body.find("<div class=\"maps\">") != body.npos;
  return page_with(
      title, body, "<script>",
      {has_charts ? page::chart_library : "", has_charts ? page::charts : "", has_maps ? page::maps : ""});
}

std::string live_page_html(std::string_view title, std::string_view body, std::string_view nonce) {
  return page_with(title, body, concat_text("<script nonce=\"", nonce, "\">"),
                   {page::chart_library, page::charts, page::maps, page::live});
}

namespace {

constexpr std::string_view training_loss = "training loss", validation_loss = "validation loss";

constexpr std::string_view part_start = "part of the loss: ", validation_start = "validation ",
                           memory_curve = "peak memory in MB";

/// Order of the charts: losses, parts of the loss, metrics, everything else.
int rank_of(std::string_view curve) {
  if (curve == training_loss || curve == validation_loss) return 0;
  return curve.starts_with(part_start) ? 1 : curve.starts_with(validation_start) ? 2 : 3;
}

/// What the vertical axis of a curve counts.
std::string axis_of(std::string_view curve) {
  if (curve == memory_curve) return "MB";
  if (rank_of(curve) == 0 || curve.starts_with(part_start)) return "loss";
  if (curve.starts_with(validation_start)) curve.remove_prefix(validation_start.size());
  return std::string(curve);
}

Chart chart_of(const std::string& curve, std::vector<ChartSeries> series) {
  return {ChartKind::lines, curve, "step", axis_of(curve), std::move(series)};
}

/// The records of a run as curves, in display order.
std::vector<ChartSeries> curves_of(std::span<const Progress> records) {
  std::vector<ChartSeries> curves;
  std::unordered_map<std::string, std::size_t> places;
  const auto add = [&](const std::string& name, const Progress& record, double value) {
    if (!std::isfinite(value)) return;
    const auto [place, is_new] = places.try_emplace(name, curves.size());
    if (is_new) curves.push_back({name, {}});
    const double seconds = std::isfinite(record.elapsed_seconds) ? record.elapsed_seconds : 0;
    curves[place->second].points.push_back({static_cast<double>(record.step), value, seconds});
  };
  for (const Progress& record : records) {
    for (const auto& [name, value] : record.metrics) add(concat_text(validation_start, name), record, value);
    if (record.is_evaluation()) continue;
    add(std::string(training_loss), record, record.loss);
    for (const auto& [name, value] : record.auxiliary) add(concat_text(part_start, name), record, value);
    add("learning rate", record, record.learning_rate);
    add("gradient norm", record, record.gradient_norm);
    add(record.unit + " per second", record, record.tokens_per_second);
    if (record.memory_bytes > 0)
      add(std::string(memory_curve), record, static_cast<double>(record.memory_bytes) / 1e6);
  }
  std::ranges::stable_sort(curves, {}, [](const ChartSeries& curve) { return rank_of(curve.name); });
  return curves;
}

/// The charts of one run; both losses share one.
std::vector<Chart> charts_of_run(const std::vector<ChartSeries>& curves) {
  std::vector<Chart> charts;
  std::vector<ChartSeries> losses;
  for (const ChartSeries& curve : curves)
    if (rank_of(curve.name) == 0) losses.push_back(curve);
  if (losses.size() == 2) {
    std::ranges::sort(losses, {}, &ChartSeries::name);  // training first
    charts.push_back(chart_of("loss", losses));
    charts.back().y = "loss";
  }
  for (const ChartSeries& curve : curves) {
    if (rank_of(curve.name) == 0 && losses.size() == 2) continue;
    charts.push_back(chart_of(curve.name, {{"", curve.points}}));
    charts.back().remark = "last " + short_number(curve.points.back().y);
  }
  return charts;
}

/// The numbers of all curves, a row for each step; of many steps `most`, evenly spread, half of them
/// evaluations.
std::string numbers_html(const std::vector<ChartSeries>& curves, std::size_t most) {
  std::map<double, std::vector<std::string>> rows;  // by step
  std::vector<double> evaluations, others;
  std::vector<std::string> head = {"step", "time"};
  for (std::size_t i = 0; i < curves.size(); ++i) {
    head.push_back(curves[i].name);
    for (const ChartPoint& point : curves[i].points) {
      std::vector<std::string>& row = rows[point.x];
      row.resize(curves.size() + 2);
      row[0] = digits(point.x);
      row[1] = duration_text(point.seconds);
      row[i + 2] = short_number(point.y);
    }
  }
  for (const auto& [step, row] : rows) {
    bool measured = false;
    for (std::size_t i = 0; i < curves.size(); ++i)
      measured = measured || (curves[i].name.starts_with(validation_start) && !row[i + 2].empty());
    (measured ? evaluations : others).push_back(step);
  }
  std::vector<double> kept;
  const auto keep = [&](const std::vector<double>& steps, std::size_t rows_left) {
    const std::size_t count = std::min(rows_left, steps.size());
    for (std::size_t i = 0; i < count; ++i)
      kept.push_back(steps[count == 1 ? steps.size() - 1 : i * (steps.size() - 1) / (count - 1)]);
  };
  keep(evaluations, most / 2);
  keep(others, most - kept.size());
  std::ranges::sort(kept);
  std::vector<std::vector<std::string>> table = {head};
  for (const double step : kept) table.push_back(rows.at(step));
  return table_html(table) + (kept.size() < rows.size()
                                  ? concat_text("<p class=\"muted\"><small>", kept.size(), " of ",
                                                rows.size(), " steps.</small></p>\n")
                                  : "");
}

}  // namespace

std::string curves_html(std::span<const RunRecords> runs) {
  std::vector<std::vector<ChartSeries>> curves;  // of each run
  for (const RunRecords& run : runs) curves.push_back(curves_of(run.records));
  if (runs.size() == 1)
    return curves[0].empty() ? "<p>Nothing has been recorded yet.</p>\n"
                             : charts_html(charts_of_run(curves[0])) +
                                   details_html("The numbers", numbers_html(curves[0], rows_of_numbers));
  std::vector<std::string> names;                                          // of the curves
  std::unordered_map<std::string, std::vector<const ChartSeries*>> named;  // of each run, or null
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const ChartSeries& curve : curves[i]) {
      const auto [found, is_new] = named.try_emplace(curve.name, runs.size(), nullptr);
      if (is_new) names.push_back(curve.name);
      found->second[i] = &curve;
    }
  std::ranges::stable_sort(names, {}, rank_of);
  std::vector<Chart> charts;
  for (const std::string& name : names) {
    std::vector<ChartSeries> series;  // of every run, so that each keeps its colour in all charts
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const ChartSeries* const curve = named.at(name)[i];
      series.push_back({runs[i].name, curve ? curve->points : std::vector<ChartPoint>()});
    }
    charts.push_back(chart_of(name, std::move(series)));
  }
  std::string html = charts_html(charts, true);
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += details_html("The numbers of " + runs[i].name, numbers_html(curves[i], rows_of_numbers / 4));
  return html;
}

std::string summary_html(std::span<const Progress> records) {
  if (records.empty()) return "<p>Nothing has been recorded yet.</p>\n";
  const Progress& last = records.back();
  std::string text = concat_text("<p>Step ", last.step, " of ", last.steps, ", epoch ", last.epoch, ", ",
                                 duration_text(last.elapsed_seconds), " of training.");
  const auto best =
      std::find_if(records.rbegin(), records.rend(), [](const Progress& r) { return r.is_best; });
  if (best != records.rend()) {
    text += concat_text(" Best evaluation at step ", best->step, ":");
    for (const auto& [name, value] : best->metrics)
      text += concat_text(&name == &best->metrics.front().first ? " " : ", ", html_text(name), " ",
                          short_number(value));
    text += ".";
  }
  return text.append("</p>\n");
}

std::string report_html(std::span<const Progress> records, std::string_view configuration) {
  const RunRecords run{"", {records.begin(), records.end()}};
  return page_html(
      "Training report",
      concat_text(
          "<h1>Training report</h1>\n", summary_html(records),
          "<p class=\"muted\">Written while training: what the model does is added when training ends, or by "
          "<code>heed report</code>.</p>\n<h2>Curves</h2>\n",
          curves_html({&run, 1}), "<h2>Settings</h2>\n<pre>", html_text(configuration), "</pre>\n"));
}

}  // namespace heed
