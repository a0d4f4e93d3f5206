#include "heed/training/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "heed/core/error.h"

namespace heed {
namespace {

constexpr double width = 640, height = 240, left = 64, right = 12, top = 12, bottom = 28;

struct Point {
  double step, value;
};

/// One drawing: a title and its points in the order of steps.
struct Curve {
  std::string title;
  std::vector<Point> points;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
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

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

/// The records as curves, in the order in which their names first appear.
std::vector<Curve> curves_of(std::span<const Progress> records) {
  std::vector<Curve> curves;
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

/// Steps of 1, 2 or 5 times a power of ten, about four of them between low and high.
double tick_distance(double low, double high) {
  const double raw = (high - low) / 4;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

/// At most about two points per pixel, the extremes of each group, so that long runs stay small files.
std::vector<Point> thinned(const std::vector<Point>& points) {
  const std::size_t group = points.size() / static_cast<std::size_t>(width) + 1;
  if (group == 1) return points;
  std::vector<Point> kept;
  for (std::size_t i = 0; i < points.size(); i += group) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(std::min(i + group, points.size()));
    auto [low, high] = std::minmax_element(begin, end, [](Point a, Point b) { return a.value < b.value; });
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  if (kept.back().step != points.back().step) kept.push_back(points.back());
  return kept;
}

std::string drawing(const Curve& curve) {
  double low = curve.points[0].value, high = low;
  for (const Point& point : curve.points)
    low = std::min(low, point.value), high = std::max(high, point.value);
  if (high - low <= 1e-12 * std::abs(high)) {  // a level line in the middle
    const double margin = std::max(std::abs(high) / 2, 1e-12);
    low -= margin, high += margin;
  }
  const double first = curve.points.front().step, last = std::max(curve.points.back().step, first + 1);
  const auto x = [&](double step) { return left + (step - first) / (last - first) * (width - left - right); };
  const auto y = [&](double value) { return top + (high - value) / (high - low) * (height - top - bottom); };

  std::string svg = concat_text("<svg viewBox=\"0 0 ", width, " ", height, "\" role=\"img\" aria-label=\"",
                                escaped(curve.title), "\">\n");
  const double distance = tick_distance(low, high);
  for (int i = 0; i <= 10; ++i) {
    const double value = (std::ceil(low / distance) + i) * distance;
    if (value > high) break;
    svg += "<line class=\"grid\" x1=\"" + coordinate(left) + "\" x2=\"" + coordinate(width - right) +
           "\" y1=\"" + coordinate(y(value)) + "\" y2=\"" + coordinate(y(value)) +
           "\"/><text class=\"y\" x=\"" + coordinate(left - 6) + "\" y=\"" + coordinate(y(value) + 4) +
           "\">" + short_number(value) + "</text>\n";
  }
  for (double step : {first, last}) {
    svg += "<text class=\"" + std::string(step == first ? "first" : "last") + "\" x=\"" +
           coordinate(x(step)) + "\" y=\"" + coordinate(height - 8) + "\">" +
           concat_text(static_cast<long long>(step)) + "</text>\n";
  }
  const std::vector<Point> points = thinned(curve.points);
  svg += "<polyline points=\"";
  for (const Point& point : points) svg += coordinate(x(point.step)) + "," + coordinate(y(point.value)) + " ";
  svg += "\"/>\n";
  if (points.size() <= 100) {
    for (const Point& point : points) {
      svg += "<circle r=\"2.5\" cx=\"" + coordinate(x(point.step)) + "\" cy=\"" + coordinate(y(point.value)) +
             "\"><title>step " + concat_text(static_cast<long long>(point.step)) + ": " +
             short_number(point.value) + "</title></circle>\n";
    }
  }
  return svg + "</svg>\n";
}

constexpr std::string_view head = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Training report</title><style>
:root { color-scheme: light dark; --line: #2563eb; --grid: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1360px; margin: 2em auto; padding: 0 1em; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(420px, 1fr)); gap: 1.5em; }
figure { margin: 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; }
svg text { font-size: 12px; fill: currentColor; } text.y, text.last { text-anchor: end; }
polyline { fill: none; stroke: var(--line); stroke-width: 1.5; stroke-linejoin: round; }
circle { fill: var(--line); } .grid { stroke: var(--grid); }
pre { overflow-x: auto; background: var(--grid); padding: 1em; border-radius: 6px; }
</style></head><body>
)";

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
      text += concat_text(" ", escaped(name), " ", short_number(value));
    text += ".";
  }
  return text.append("</p>\n");
}

}  // namespace

std::string report_html(std::span<const Progress> records, std::string_view configuration) {
  std::string page(head);
  page += "<h1>Training report</h1>\n" + summary_of(records) + "<main>\n";
  for (const Curve& curve : curves_of(records)) {
    if (curve.points.empty()) continue;
    page += "<figure><figcaption>" + escaped(curve.title) + " (last " +
            short_number(curve.points.back().value) + ")</figcaption>\n" + drawing(curve) + "</figure>\n";
  }
  return page + "</main>\n<h2>Configuration</h2>\n<pre>" + escaped(configuration) +
         "</pre>\n</body></html>\n";
}

}  // namespace heed
