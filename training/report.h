#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/training/progress.h"

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
/// How often values fall into bins of one width: `counts[s][i]` is the share of series s in bin i, from
/// low + i * width on. At least one bin; every list has as many.
struct Histogram {
  double low = 0, width = 1;  ///< width > 0
  std::vector<std::string> names;
  std::vector<std::vector<double>> counts;
};
std::string histogram_chart(std::string_view title, const Histogram& histogram);
/// A mark for every point. At least one series must have a point.
std::string scatter_chart(std::string_view title, std::span<const ChartSeries> series);
/// The names of the series with their colours.
std::string chart_legend(std::span<const ChartSeries> series);

/// A drawing with what it shows above it; `remark` stands behind that, smaller.
std::string figure(std::string_view caption, std::string_view remark, std::string_view drawing);

/// The beginning of a page, up to `<body>`; `style`: more CSS. Its colours are --ink, --paper, --muted,
/// --line-soft, --grid and --accent, light or dark as the reader has it.
std::string page_head(std::string_view title, std::string_view style = {});
inline constexpr std::string_view page_end = "</body></html>\n";
/// A table in which a row is a list of texts, the first row the head; it scrolls where it is too wide. Texts
/// that are words more than numbers stand on the left, and break where they are long.
std::string table_html(std::span<const std::vector<std::string>> rows, bool is_words = false);
/// Text that means itself in HTML, also within quotes.
std::string html_text(std::string_view text);
/// Four significant digits.
std::string short_number(double value);

// What a report says of how training went. What it says of the model (examples, mistakes) needs the task:
// tasks/report.h.

/// The records of a run, under a name that tells it from others.
struct RunRecords {
  std::string name;
  std::vector<Progress> records;
};

/// A drawing for each thing that was recorded: loss and its parts, metrics, learning rate, gradient norm,
/// throughput, memory. Of several runs, which are told apart by colour, the curves lie over each other.
std::string curves_html(std::span<const RunRecords> runs);
/// How far a run has come, and its best evaluation.
std::string summary_html(std::span<const Progress> records);

/// A page with the curves of a run and its configuration. All in one file, drawings as inline SVG: it opens
/// without a network.
std::string report_html(std::span<const Progress> records, std::string_view configuration);

}  // namespace heed
