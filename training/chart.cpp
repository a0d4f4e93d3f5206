#include "heed/training/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "heed/core/error.h"

namespace heed {
namespace {

constexpr double width = 640, height = 240, left = 64, right = 12, top = 12, bottom = 28;

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

/// A value on the horizontal axis: whole numbers, such as steps, with all their digits.
std::string place_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? concat_text(static_cast<long long>(value))
                                                              : short_number(value);
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
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points) {
  const std::size_t group = points.size() / static_cast<std::size_t>(width) + 1;
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

/// What a drawing shows of its plane, and where.
struct Frame {
  double first = 0, last = 1, low = 0, high = 1;

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
    if (high - low <= 1e-12 * std::abs(high)) {  // a level line in the middle
      const double margin = std::max(std::abs(high) / 2, 1e-12);
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

/// A mark with its place in words, which shows when the pointer rests on it.
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
    if (points.size() <= 100)
      for (const ChartPoint& point : points)
        svg += mark(frame, point, 2.5, name + "step " + place_text(point.x) + ": " + short_number(point.y));
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

std::string page_head(std::string_view title) {
  std::string page = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>)";
  page += html_text(title);
  return page + R"(</title><style>
:root { color-scheme: light dark; --grid: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1360px; margin: 2em auto; padding: 0 1em; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); gap: 1.5em; }
figure { margin: 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; }
svg text { font-size: 12px; fill: currentColor; } text.y, text.last { text-anchor: end; }
.s0 { --line: #2563eb; } .s1 { --line: #dc6803; } .s2 { --line: #16a34a; } .s3 { --line: #c026d3; }
.s4 { --line: #0891b2; } .s5 { --line: #dc2626; } .s6 { --line: #a16207; } .s7 { --line: #6b7280; }
polyline { fill: none; stroke: var(--line); stroke-width: 1.5; stroke-linejoin: round; }
circle { fill: var(--line); } .grid { stroke: var(--grid); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; padding: 0; }
.legend li::before { content: ""; display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em; background: var(--line); border-radius: 2px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: 0.3em 0.8em; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap; }
.notes { white-space: pre-line; } th:first-child, td:first-child { text-align: left; }
pre { overflow-x: auto; background: var(--grid); padding: 1em; border-radius: 6px; }
</style></head><body>
)";
}

}  // namespace heed
