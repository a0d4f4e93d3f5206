#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Drawings and pages of the reports: inline SVG in one HTML file that needs nothing else, light and dark.

namespace heed {

struct ChartPoint {
  double x, y;  ///< finite
};

struct ChartSeries {
  std::string name;  ///< in the legend and at the marks; "" where there is but one
  std::vector<ChartPoint> points;
};

/// How many series have a colour of their own; those beyond share them.
inline constexpr std::size_t chart_colors = 8;

/// Lines over steps, which ascend within a series. At least one series must have a point.
std::string line_chart(std::string_view title, std::span<const ChartSeries> series);
/// A mark for every point. At least one series must have a point.
std::string scatter_chart(std::string_view title, std::span<const ChartSeries> series);
/// The names of the series with their colours.
std::string chart_legend(std::span<const ChartSeries> series);

/// The beginning of a page, up to <body>.
std::string page_head(std::string_view title);
/// Text that means itself in HTML, also within quotes.
std::string html_text(std::string_view text);
/// Four significant digits.
std::string short_number(double value);

}  // namespace heed
