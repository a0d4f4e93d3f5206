#include "heed/training/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "heed/core/error.h"
#include "heed/training/chart.h"

namespace heed {
namespace {

constexpr std::string_view training_loss = "training loss", validation_loss = "validation loss";

constexpr std::string_view part_start = "part of the loss: ", validation_start = "validation ";

/// Losses come first, then their parts, then metrics.
int rank_of(std::string_view curve) {
  if (curve == training_loss || curve == validation_loss) return 0;
  return curve.starts_with(part_start) ? 1 : curve.starts_with(validation_start) ? 2 : 3;
}

/// The records of a run as curves, in the order in which they are shown.
std::vector<ChartSeries> curves_of(std::span<const Progress> records) {
  std::vector<ChartSeries> curves;
  const auto add = [&](const std::string& name, const Progress& record, double value) {
    if (!std::isfinite(value)) return;
    auto found = std::ranges::find(curves, name, &ChartSeries::name);
    if (found == curves.end()) found = curves.insert(curves.end(), {name, {}});
    found->points.push_back({static_cast<double>(record.step), value});
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
      add("peak memory in MB", record, static_cast<double>(record.memory_bytes) / 1e6);
  }
  std::ranges::stable_sort(curves, {}, [](const ChartSeries& curve) { return rank_of(curve.name); });
  return curves;
}

std::string last_value(const ChartSeries& curve) {
  return "last " + short_number(curve.points.back().y);
}

/// The curves of one run; both losses share a drawing.
std::string curves_of_run(std::span<const Progress> records) {
  std::vector<ChartSeries> curves = curves_of(records), losses;
  for (ChartSeries& curve : curves)
    if (rank_of(curve.name) == 0) losses.push_back(curve);
  std::string charts;
  if (losses.size() == 2) {
    std::ranges::sort(losses, {}, &ChartSeries::name);  // training first
    charts += figure("loss", "", chart_legend(losses) + line_chart("loss", losses));
  }
  for (ChartSeries& curve : curves) {
    if (rank_of(curve.name) == 0 && losses.size() == 2) continue;
    const std::string name = std::exchange(curve.name, "");
    charts += figure(name, last_value(curve), line_chart(name, {&curve, 1}));
  }
  return charts;
}

}  // namespace

std::string curves_html(std::span<const RunRecords> runs) {
  if (runs.size() == 1) return "<div class=\"charts\">\n" + curves_of_run(runs[0].records) + "</div>\n";
  std::vector<std::string> names;  // of the curves
  std::vector<ChartSeries> legend;
  std::vector<std::map<std::string, std::vector<ChartPoint>>> points(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    legend.push_back({runs[i].name, {}});
    for (ChartSeries& curve : curves_of(runs[i].records)) {
      if (std::ranges::count(names, curve.name) == 0) names.push_back(curve.name);
      points[i][curve.name] = std::move(curve.points);
    }
  }
  std::ranges::stable_sort(names, {}, rank_of);
  std::string charts = chart_legend(legend) + "<div class=\"charts\">\n";
  for (const std::string& name : names) {
    std::vector<ChartSeries> series = legend;  // each run keeps its colour from drawing to drawing
    for (std::size_t i = 0; i < runs.size(); ++i) series[i].points = points[i][name];
    charts += figure(name, "", line_chart(name, series));
  }
  return charts + "</div>\n";
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
  return page_head("Training report") + "<h1>Training report</h1>\n" + summary_html(records) +
         curves_html({&run, 1}) + "<h2>Configuration</h2>\n<pre>" + html_text(configuration) + "</pre>\n" +
         std::string(page_end);
}

}  // namespace heed
