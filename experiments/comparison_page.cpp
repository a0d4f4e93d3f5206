#include "heed/experiments/comparison_page.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "heed/training/chart.h"
#include "heed/training/metrics_log.h"
#include "heed/training/report.h"

namespace heed {
namespace {

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

std::string table_of(std::span<const ComparisonRow> rows) {
  return table_html(comparison_table(rows)) + "<p class=\"notes\">" + html_text(comparison_notes(rows)) +
         "</p>\n";
}

}  // namespace

std::vector<Progress> progress_of_cell(const std::filesystem::path& folder) {
  return read_metrics(folder / "run" / "metrics.jsonl");
}

std::string comparison_html(std::string_view title, std::span<const ComparisonRow> rows,
                            std::span<const std::vector<Progress>> progress) {
  std::string page = page_head(title) + "<h1>" + html_text(title) + "</h1>\n" + table_of(rows);
  const auto measured = std::ranges::find_if(rows, [](const auto& row) { return !row.results.empty(); });
  if (measured == rows.end() || measured->results.front().metrics.empty()) return page.append(page_end);

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
    if (has_points(series)) charts += figure(metric + " against " + cost, "", scatter_chart(metric, series));
  };
  add_scatter("training time in seconds", [](const CellResult& r) { return r.training_seconds; });
  add_scatter("peak memory in MB",
              [](const CellResult& r) { return static_cast<double>(r.peak_bytes) / 1e6; });

  std::vector<RunRecords> runs;
  for (std::size_t i = 0; i < rows.size(); ++i) runs.push_back({rows[i].choice, progress[i]});
  const auto no_points = [](std::size_t) { return std::vector<ChartPoint>(); };
  page += "<h2>Quality against cost</h2>\n" + chart_legend(series_of(rows, no_points)) +
          "<div class=\"charts\">\n" + charts + "</div>\n<h2>Curves, one seed each</h2>\n" +
          curves_html(runs);
  return page.append(page_end);
}

}  // namespace heed
