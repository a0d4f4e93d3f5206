#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/training/progress.h"

// Charts and pages for reports: one self-contained HTML file, in light or dark colours, whose charts Chart.js
// draws from data beside them (training/page/charts.js). Without scripts the tables of numbers remain.

namespace heed {

struct ChartPoint {
  double x, y;         ///< finite
  double seconds = 0;  ///< of training until then, which lines are drawn over on request
};

struct ChartSeries {
  std::string name;  ///< in the legend and the tooltips; "" for a single series
  std::vector<ChartPoint> points;
};

/// Lines over training steps, which must ascend within a series; a mark for each point; or bars, each from
/// its x to that of the next point.
enum class ChartKind { lines, marks, bars };

struct Chart {
  ChartKind kind = ChartKind::lines;
  std::string title, x, y;  ///< of the chart and its axes
  std::vector<ChartSeries> series;
  std::string remark = {};  ///< behind the title, in smaller type
};

/// Charts side by side. With `one_legend`, all have the same series, and their common legend hides one in all
/// of them. Of a long line the lowest and highest point of each stretch are kept.
std::string charts_html(std::span<const Chart> charts, bool one_legend = false);

/// A whole page, with what its charts and maps need. It defines the colours --ink, --paper, --muted,
/// --line-soft, --grid and --accent, light or dark as the reader's system prefers.
std::string page_html(std::string_view title, std::string_view body);
/// The same for a page that a server keeps up to date (training/page/live.js). Its scripts have the `nonce`
/// that the server's Content-Security-Policy names.
std::string live_page_html(std::string_view title, std::string_view body, std::string_view nonce);
/// JSON within an element <script type="application/json">, which nothing in a text can end.
std::string script_json(std::string json);
/// A table of rows of text, with the first row as head; it scrolls if too wide. With `is_words`, cells are
/// left-aligned and long text wraps.
std::string table_html(std::span<const std::vector<std::string>> rows, bool is_words = false);
/// What opens on a click, under its title.
std::string details_html(std::string_view title, std::string_view content);
/// Escapes text for HTML, also for use within double quotes.
std::string html_text(std::string_view text);
/// Four significant digits; 23510, not 2.351e+04.
std::string short_number(double value);

// How training went. The parts of a report about the model (examples, mistakes) need the task: see
// apps/tasks/report.h.

/// The records of a run, with a name to tell it from other runs.
struct RunRecords {
  std::string name;
  std::vector<Progress> records;
};

/// A chart for each recorded quantity: loss and its parts, metrics, learning rate, gradient norm, throughput,
/// memory; and their numbers as a table. Curves of several runs share a chart, each run in its own colour.
std::string curves_html(std::span<const RunRecords> runs);
/// The progress of a run and its best evaluation.
std::string summary_html(std::span<const Progress> records);

/// A page with the curves of a run and its configuration, in one file that opens without a network.
std::string report_html(std::span<const Progress> records, std::string_view configuration);

}  // namespace heed
