#include "heed/experiments/comparison_page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>

#include "heed/core/file.h"
#include "heed/training/chart.h"
#include "heed/training/metrics_log.h"

namespace heed {
namespace {

std::string figure(const std::string& caption, const std::string& chart) {
  return "<figure><figcaption>" + html_text(caption) + "</figcaption>\n" + chart + "</figure>\n";
}

bool has_points(std::span<const ChartSeries> series) {
  return std::ranges::any_of(series, [](const ChartSeries& one) { return !one.points.empty(); });
}

/// A series for each row, in their order, so that colours stay the same from chart to chart.
std::vector<ChartSeries> series_of(std::span<const ComparisonRow> rows,
                                   const std::function<std::vector<ChartPoint>(std::size_t)>& points) {
  std::vector<ChartSeries> series;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    series.push_back({rows[i].choice, {}});
    for (const ChartPoint& point : points(i))
      if (std::isfinite(point.x) && std::isfinite(point.y)) series.back().points.push_back(point);
  }
  return series;
}

std::string table_html(std::span<const ComparisonRow> rows) {
  std::string page = "<div class=\"wide\"><table>\n";
  bool head = true;
  for (const std::vector<std::string>& line : comparison_table(rows)) {
    page += "<tr>";
    for (const std::string& cell : line) {
      const std::string tag = head ? "th" : "td";
      page += "<" + tag + ">" + html_text(cell) + "</" + tag + ">";
    }
    page += "</tr>\n";
    head = false;
  }
  return page + "</table></div>\n<p class=\"notes\">" + html_text(comparison_notes(rows)) + "</p>\n";
}

}  // namespace

std::vector<Progress> progress_of_cell(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "run" / "metrics.jsonl";
  std::vector<Progress> records;
  if (!path_exists(path)) return records;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    try {
      records.push_back(parse_metrics_line(line));
    } catch (const Error&) {
      continue;  // the log is for looking at: a torn line takes no other with it
    }
  }
  return records;
}

std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            std::span<const std::vector<Progress>> progress) {
  std::string page = page_head(title) + "<h1>" + html_text(title) + "</h1>\n" + table_html(rows);
  const auto measured = std::ranges::find_if(rows, [](const auto& row) { return !row.results.empty(); });
  if (measured == rows.end() || measured->results.front().metrics.empty()) return page + "</body></html>\n";

  const std::string metric = measured->results.front().metrics.front().name;
  std::string charts;
  const auto add_scatter = [&](const std::string& cost,
                               const std::function<double(const CellResult&)>& value) {
    const auto series = series_of(rows, [&](std::size_t i) {
      std::vector<ChartPoint> points;
      for (const CellResult& result : rows[i].results)
        points.push_back({value(result), result.metrics.front().value});
      return points;
    });
    if (has_points(series)) charts += figure(metric + " against " + cost, scatter_chart(metric, series));
  };
  add_scatter("training time in seconds", [](const CellResult& r) { return r.training_seconds; });
  add_scatter("peak memory in MB",
              [](const CellResult& r) { return static_cast<double>(r.peak_bytes) / 1e6; });

  const auto add_curves = [&](const std::string& name,
                              const std::function<std::optional<double>(const Progress&)>& value) {
    const auto series = series_of(rows, [&](std::size_t i) {
      std::vector<ChartPoint> points;
      for (const Progress& record : progress[i])
        if (const auto found = value(record)) points.push_back({static_cast<double>(record.step), *found});
      return points;
    });
    if (has_points(series)) charts += figure(name + " over steps, one seed each", line_chart(name, series));
  };
  add_curves("training loss", [](const Progress& record) {
    return record.is_evaluation() ? std::nullopt : std::optional(record.loss);
  });
  add_curves("validation " + metric, [&](const Progress& record) -> std::optional<double> {
    for (const auto& [name, value] : record.metrics)
      if (name == metric) return value;
    return std::nullopt;
  });
  return page + chart_legend(series_of(rows, [](std::size_t) { return std::vector<ChartPoint>(); })) +
         "<main>\n" + charts + "</main></body></html>\n";
}

}  // namespace heed
