#include "heed/training/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "heed/base/error.h"

namespace heed {
namespace {

// About as wide as a phone, so that text keeps its size there; wider pages place several charts side by side.
constexpr double width = 380, height = 200, left = 52, right = 10, top = 10, bottom = 24;
constexpr std::size_t visible_marks = 30, marks_to_point_at = 300;

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

/// A value on the horizontal axis. Whole numbers, such as steps, keep all their digits.
std::string place_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? concat_text(static_cast<long long>(value))
                                                              : short_number(value);
}

/// Distance between ticks: 1, 2 or 5 times a power of ten, for about four ticks between low and high.
double tick_distance(double low, double high) {
  const double raw = (high - low) / 4;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

/// Keeps the lowest and highest point of each group, at most about four points per unit of width, so that
/// long runs give small files.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points) {
  const std::size_t group = points.size() / static_cast<std::size_t>(2 * width) + 1;
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

/// The range a chart shows, and its mapping to coordinates.
struct Frame {
  double first = 0, last = 1, low = 0, high = 1;

  Frame(double first, double last, double high) : first(first), last(last), high(high) {}
  explicit Frame(std::span<const ChartSeries> series) {
    bool any = false;
    for (const ChartSeries& one : series)
      for (const ChartPoint& point : one.points) {
        first = any ? std::min(first, point.x) : point.x;
        last = any ? std::max(last, point.x) : point.x;
        low = any ? std::min(low, point.y) : point.y;
        high = any ? std::max(high, point.y) : point.y;
        any = true;
      }
    if (high - low <= 1e-12 * std::abs(high)) {  // puts a level line in the middle
      const double margin = high == 0 ? 1 : std::abs(high) / 2;
      low -= margin, high += margin;
    }
  }
  double x(double value) const {
    return left + (value - first) / std::max(last - first, 1e-300) * (width - left - right);
  }
  double y(double value) const { return top + (high - value) / (high - low) * (height - top - bottom); }

  std::string begin(std::string_view title) const {
    std::string svg = concat_text("<svg viewBox=\"0 0 ", width, " ", height, "\" role=\"img\" aria-label=\"",
                                  html_text(title), "\">\n");
    const double distance = tick_distance(low, high);
    for (int i = 0; i <= 10; ++i) {
      const double value = (std::ceil(low / distance) + i) * distance;
      if (value > high) break;
      svg += "<line class=\"grid\" x1=\"" + coordinate(left) + "\" x2=\"" + coordinate(width - right) +
             "\" y1=\"" + coordinate(y(value)) + "\" y2=\"" + coordinate(y(value)) +
             "\"/><text class=\"y\" x=\"" + coordinate(left - 6) + "\" y=\"" + coordinate(y(value) + 4) +
             "\">" + short_number(value) + "</text>\n";
    }
    for (const double value : {first, last})
      svg += "<text class=\"" + std::string(value == first ? "first" : "last") + "\" x=\"" +
             coordinate(x(value)) + "\" y=\"" + coordinate(height - 8) + "\">" + place_text(value) +
             "</text>\n";
    return svg;
  }
};

/// A mark with a tooltip that says where it is.
std::string mark(const Frame& frame, const ChartPoint& point, double radius, const std::string& words) {
  return "<circle r=\"" + short_number(radius) + "\" cx=\"" + coordinate(frame.x(point.x)) + "\" cy=\"" +
         coordinate(frame.y(point.y)) + "\"><title>" + words + "</title></circle>\n";
}

std::string group_of(std::size_t series) {
  return concat_text("<g class=\"s", series % chart_colors, "\">");
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
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string line_chart(std::string_view title, std::span<const ChartSeries> series) {
  const Frame frame(series);
  std::string svg = frame.begin(title);
  for (std::size_t s = 0; s < series.size(); ++s) {
    if (series[s].points.empty()) continue;
    const std::vector<ChartPoint> points = thinned(series[s].points);
    svg += group_of(s) + "<polyline points=\"";
    for (const ChartPoint& point : points)
      svg += coordinate(frame.x(point.x)) + "," + coordinate(frame.y(point.y)) + " ";
    svg += "\"/>\n";
    const std::string name = series[s].name.empty() ? "" : html_text(series[s].name) + ", ";
    if (points.size() > visible_marks) svg += "<g class=\"hidden\">";  // invisible, for tooltips only
    if (points.size() <= marks_to_point_at)
      for (const ChartPoint& point : points)
        svg += mark(frame, point, points.size() > visible_marks ? 4 : 2.5,
                    name + "step " + place_text(point.x) + ": " + short_number(point.y));
    if (points.size() > visible_marks) svg += "</g>";
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

std::string scatter_chart(std::string_view title, std::span<const ChartSeries> series) {
  const Frame frame(series);
  std::string svg = frame.begin(title);
  for (std::size_t s = 0; s < series.size(); ++s) {
    svg += group_of(s);
    for (const ChartPoint& point : series[s].points)
      svg += mark(frame, point, 6,
                  html_text(series[s].name) + ": " + short_number(point.x) + ", " + short_number(point.y));
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

std::string chart_legend(std::span<const ChartSeries> series) {
  std::string list = "<ul class=\"legend\">";
  for (std::size_t s = 0; s < series.size(); ++s)
    list += concat_text("<li class=\"s", s % chart_colors, "\">") + html_text(series[s].name) + "</li>";
  return list + "</ul>\n";
}

std::string histogram_chart(std::string_view title, const Histogram& histogram) {
  const std::size_t bins = histogram.counts.at(0).size();
  double most = 0;
  for (const std::vector<double>& counts : histogram.counts)
    for (const double count : counts) most = std::max(most, count);
  const auto edge = [&](std::size_t i) { return histogram.low + static_cast<double>(i) * histogram.width; };
  const Frame frame(edge(0), edge(bins), most > 0 ? most : 1);
  std::string svg = frame.begin(title);
  for (std::size_t s = 0; s < histogram.counts.size(); ++s) {
    svg += group_of(s) + "<polygon points=\"" + coordinate(frame.x(edge(0))) + "," + coordinate(frame.y(0));
    for (std::size_t i = 0; i < bins; ++i)
      for (const std::size_t at : {i, i + 1})
        svg += concat_text(' ', coordinate(frame.x(edge(at))), ',',
                           coordinate(frame.y(histogram.counts[s].at(i))));
    svg += concat_text(' ', coordinate(frame.x(edge(bins))), ',', coordinate(frame.y(0)), "\"/></g>\n");
  }
  for (std::size_t i = 0; i < bins; ++i) {
    std::string words = short_number(edge(i)) + " to " + short_number(edge(i + 1));
    for (std::size_t s = 0; s < histogram.counts.size(); ++s)
      words +=
          concat_text(", ", histogram.names.at(s), ' ', short_number(100 * histogram.counts[s][i]), " %");
    svg += "<rect class=\"hidden\" x=\"" + coordinate(frame.x(edge(i))) + "\" y=\"" + coordinate(top) +
           "\" width=\"" + coordinate(frame.x(edge(i + 1)) - frame.x(edge(i))) + "\" height=\"" +
           coordinate(height - top - bottom) + "\"><title>" + html_text(words) + "</title></rect>\n";
  }
  return svg + "</svg>\n";
}

std::string figure(std::string_view caption, std::string_view remark, std::string_view drawing) {
  std::string text = "<figure><figcaption>" + html_text(caption);
  if (!remark.empty()) text += " <small>" + html_text(remark) + "</small>";
  return text.append("</figcaption>\n").append(drawing).append("</figure>\n");
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

std::string page_head(std::string_view title, std::string_view style) {
  std::string page = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>)";
  page += html_text(title);
  page += R"(</title><style>
:root { color-scheme: light dark; --ink: #1f2328; --paper: #fdfdfc; --muted: #656d76; --line-soft: #e3e4e1; --grid: #ececea; --accent: 37 99 201; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe1e4; --paper: #16181b; --muted: #9299a3; --line-soft: #32363c; --grid: #282b30; --accent: 122 170 245; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 0.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 2.5rem 0 0.8rem; padding-top: 1.2rem; border-top: 1px solid var(--line-soft); }
h3 { font-size: 1rem; margin: 1.6rem 0 0.5rem; overflow-wrap: anywhere; } h4 { font-size: 0.85rem; margin: 1rem 0 0.3rem; color: var(--muted); font-weight: 600; }
p { margin: 0.4rem 0; max-width: 46rem; overflow-wrap: anywhere; } small, .muted { color: var(--muted); } small { font-size: 0.85em; font-weight: 400; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(21rem, 100%), 1fr)); gap: 1.4rem 1.6rem; }
figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; font-size: 0.9rem; margin-bottom: 0.2rem; overflow-wrap: anywhere; }
.charts svg { display: block; width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--muted); } text.y, text.last { text-anchor: end; }
.s0 { --line: #2f6fd0; } .s1 { --line: #c9701c; } .s2 { --line: #2c8f55; } .s3 { --line: #a646b8; }
.s4 { --line: #1f8ba6; } .s5 { --line: #c4434b; } .s6 { --line: #94771d; } .s7 { --line: #7a818b; }
polyline { fill: none; stroke: var(--line); stroke-width: 1.5; stroke-linejoin: round; } polygon { fill: var(--line); fill-opacity: 0.16; stroke: var(--line); stroke-width: 1.2; }
circle { fill: var(--line); } .hidden, .hidden circle { fill: transparent; } .grid { stroke: var(--grid); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; padding: 0; margin: 0.4rem 0 0.8rem; font-size: 0.85rem; overflow-wrap: anywhere; } figure .legend { margin: 0; font-size: 0.8rem; }
.legend li::before { content: ""; display: inline-block; width: 0.75em; height: 0.75em; margin-right: 0.4em; background: var(--line); border-radius: 2px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3em 0.8em; border-bottom: 1px solid var(--line-soft); text-align: right; white-space: nowrap; } th { font-weight: 600; color: var(--muted); }
.notes { white-space: pre-line; } th:first-child, td:first-child { text-align: left; padding-left: 0; }
.words th, .words td { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 5em; vertical-align: top; }
pre { overflow-x: auto; background: var(--grid); padding: 0.8em 1em; border-radius: 6px; font: 12.5px/1.5 ui-monospace, monospace; } summary { cursor: pointer; }
)";
  return page.append(style).append("</style></head><body>\n");
}

namespace {

constexpr std::string_view training_loss = "training loss", validation_loss = "validation loss";

constexpr std::string_view part_start = "part of the loss: ", validation_start = "validation ";

/// Order of the charts: losses, parts of the loss, metrics, everything else.
int rank_of(std::string_view curve) {
  if (curve == training_loss || curve == validation_loss) return 0;
  return curve.starts_with(part_start) ? 1 : curve.starts_with(validation_start) ? 2 : 3;
}

/// The records of a run as curves, in display order.
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

/// The curves of one run; both losses share a chart.
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
    std::vector<ChartSeries> series = legend;  // each run keeps its colour in all charts
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
