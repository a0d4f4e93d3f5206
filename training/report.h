#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/training/progress.h"

// Charts and pages for reports: inline SVG in one self-contained HTML file, in light or dark colours.

namespace heed {

struct ChartPoint {
  double x, y;  ///< finite
};

struct ChartSeries {
  std::string name;  ///< shown in the legend and at the marks; "" for a single series
  std::vector<ChartPoint> points;
};

/// How many series have distinct colours; further series reuse them.
inline constexpr std::size_t chart_colors = 8;

/// Lines over steps, which must ascend within a series. At least one series must have a point.
std::string line_chart(std::string_view title, std::span<const ChartSeries> series);
/// How often values fall into bins of equal width: `counts[s][i]` is the share of series s in bin i, which
/// starts at low + i * width. All lists have the same number of bins, at least one.
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

/// A drawing with a caption above it, followed by `remark` in smaller type.
std::string figure(std::string_view caption, std::string_view remark, std::string_view drawing);

/// The start of a page, up to `<body>`; `style`: extra CSS. It defines the colours --ink, --paper, --muted,
/// --line-soft, --grid and --accent, light or dark as the reader's system prefers.
std::string page_head(std::string_view title, std::string_view style = {});
inline constexpr std::string_view page_end = "</body></html>\n";
/// A table of rows of text, with the first row as head; it scrolls if too wide. With `is_words`, cells are
/// left-aligned and long text wraps.
std::string table_html(std::span<const std::vector<std::string>> rows, bool is_words = false);
/// Escapes text for HTML, also for use within double quotes.
std::string html_text(std::string_view text);
/// Four significant digits.
std::string short_number(double value);

// How training went. The parts of a report about the model (examples, mistakes) need the task: see
// tasks/report.h.

/// The records of a run, with a name to tell it from other runs.
struct RunRecords {
  std::string name;
  std::vector<Progress> records;
};

/// A chart for each recorded quantity: loss and its parts, metrics, learning rate, gradient norm,
/// throughput, memory. Curves of several runs share a chart, each run in its own colour.
std::string curves_html(std::span<const RunRecords> runs);
/// The progress of a run and its best evaluation.
std::string summary_html(std::span<const Progress> records);

/// A page with the curves of a run and its configuration, in one file with inline SVG, so that it opens
/// without a network.
std::string report_html(std::span<const Progress> records, std::string_view configuration);

}  // namespace heed
