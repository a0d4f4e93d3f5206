#include "heed/training/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "heed/core/error.h"
#include "heed/training/chart.h"

namespace heed {
namespace {

/// The records as curves, in the order in which their names first appear.
std::vector<ChartSeries> curves_of(std::span<const Progress> records) {
  std::vector<ChartSeries> curves;
  std::map<std::string, std::size_t> index;
  const auto add = [&](const std::string& title, double step, double value) {
    const auto [place, is_new] = index.emplace(title, curves.size());
    if (is_new) curves.push_back({title, {}});
    if (std::isfinite(value)) curves[place->second].points.push_back({step, value});
  };
  for (const Progress& record : records) {
    const double step = static_cast<double>(record.step);
    for (const auto& [name, value] : record.metrics) add("evaluation: " + name, step, value);
    if (record.is_evaluation()) continue;
    add("training loss", step, record.loss);
    for (const auto& [name, value] : record.auxiliary) add("training: " + name, step, value);
    add("learning rate", step, record.learning_rate);
    add("gradient norm", step, record.gradient_norm);
  }
  return curves;
}

std::string summary_of(std::span<const Progress> records) {
  if (records.empty()) return "<p>Nothing has been recorded yet.</p>\n";
  const Progress& last = records.back();
  std::string text = concat_text("<p>Step ", last.step, " of ", last.steps, ", epoch ", last.epoch, ", ",
                                 duration_text(last.elapsed_seconds), " of training.");
  const auto best =
      std::find_if(records.rbegin(), records.rend(), [](const Progress& r) { return r.is_best; });
  if (best != records.rend()) {
    text += concat_text(" Best evaluation at step ", best->step, ":");
    for (const auto& [name, value] : best->metrics)
      text += concat_text(" ", html_text(name), " ", short_number(value));
    text += ".";
  }
  return text.append("</p>\n");
}

}  // namespace

std::string report_html(std::span<const Progress> records, std::string_view configuration) {
  std::string page = page_head("Training report");
  page += "<h1>Training report</h1>\n" + summary_of(records) + "<main>\n";
  for (const ChartSeries& curve : curves_of(records)) {
    if (curve.points.empty()) continue;
    page += "<figure><figcaption>" + html_text(curve.name) + " (last " + short_number(curve.points.back().y) +
            ")</figcaption>\n" + line_chart(curve.name, {&curve, 1}) + "</figure>\n";
  }
  return page + "</main>\n<h2>Configuration</h2>\n<pre>" + html_text(configuration) +
         "</pre>\n</body></html>\n";
}

}  // namespace heed
