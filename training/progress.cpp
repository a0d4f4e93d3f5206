#include "heed/training/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "heed/core/error.h"
#include "heed/core/unicode.h"

namespace heed {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[128];
  const int length = std::snprintf(text, sizeof text, format, values...);
  return {text, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof text) - 1))};
}

/// 950, 12.3k, 1.2M.
std::string short_count(double value) {
  if (value >= 999950) return formatted("%.1fM", value / 1e6);
  if (value >= 1000) return formatted("%.1fk", value / 1e3);
  return formatted("%.0f", value);
}

std::string list_text(const std::vector<std::pair<std::string, double>>& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += "  " + unicode::printable(name) + " " + formatted("%.5g", value);
  return text;
}

std::string step_text(const Progress& progress) {
  return formatted("step %lld/%lld", static_cast<long long>(progress.step),
                   static_cast<long long>(progress.steps));
}

/// A part of the progress line, and how much it matters.
struct Part {
  std::string text;
  int weight;
};

std::string joined(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) text += part.text;
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

/// "[=====>    ] ", `width` characters inside.
std::string bar_text(const Progress& progress, int width) {
  const double share =
      progress.steps > 0 ? static_cast<double>(progress.step) / static_cast<double>(progress.steps) : 0;
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * width);
  std::string bar(static_cast<std::size_t>(width), ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < bar.size()) bar[filled] = '>';
  return concat_text('[', bar, "] ");
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const long long total = std::llround(std::min(seconds, 1e12));
  const long long days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60,
                  rest = total % 60;
  if (days > 0) return formatted("%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  if (hours > 0) return formatted("%lld:%02lld:%02lld", hours, minutes, rest);
  return formatted("%lld:%02lld", minutes, rest);
}

std::string progress_text(const Progress& progress, int columns) {
  if (progress.is_evaluation()) {
    return step_text(progress) + "  evaluation" + list_text(progress.metrics) +
           (progress.is_best ? "  (best)" : "");
  }
  std::vector<Part> parts{
      {step_text(progress), 7},
      {formatted("  epoch %lld", static_cast<long long>(progress.epoch)), 4},
      {formatted("  loss %.4g", progress.loss), 6},
      {formatted("  rate %.2e", progress.learning_rate), 3},
      {formatted("  norm %.3g", progress.gradient_norm), 2},
      {list_text(progress.auxiliary), 1},
      {"  " + short_count(progress.tokens_per_second) + " " + unicode::printable(progress.unit) + "/s", 5},
      {"  " + duration_text(progress.seconds_left) + " left", 8},
  };
  std::string text = joined(parts);
  while (columns > 0 && parts.size() > 1 && text.size() > static_cast<std::size_t>(columns)) {
    parts.erase(std::min_element(parts.begin(), parts.end(),
                                 [](const Part& a, const Part& b) { return a.weight < b.weight; }));
    text = joined(parts);
  }
  return text;
}

ProgressPrinter::Style ProgressPrinter::style_of(int descriptor) {
  Style style;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  style.overwrite = ::isatty(descriptor) == 1 && !dumb;
  style.color = style.overwrite && (no_color == nullptr || *no_color == '\0');
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) style.columns = size.ws_col;
  return style;
}

void ProgressPrinter::show(const Progress& progress) {
  if (progress.is_evaluation()) {
    const bool is_green = style_.color && progress.is_best;
    return line(is_green ? "\x1b[32m" + progress_text(progress) + "\x1b[0m" : progress_text(progress));
  }
  if (!style_.overwrite) return line(progress_text(progress));
  clear_line();
  const int columns = std::max(style_.columns - 1, 1);
  std::string text = progress_text(progress, columns);
  const int room = columns - static_cast<int>(text.size());
  if (room >= 13) text = bar_text(progress, std::min(room - 3, 30)) + text;
  out_ << text.substr(0, static_cast<std::size_t>(columns)) << std::flush;
  line_is_open_ = true;
}

void ProgressPrinter::message(std::string_view text) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    line(unicode::message_line(text.substr(begin, end - begin)));
    begin = end + 1;
  }
}

void ProgressPrinter::line(std::string_view text) {
  clear_line();
  out_ << text << '\n' << std::flush;
}

void ProgressPrinter::finish() {
  if (line_is_open_) out_ << '\n' << std::flush;
  line_is_open_ = false;
}

void ProgressPrinter::clear_line() {
  if (line_is_open_) out_ << "\r\x1b[K";  // erase to the end of the line
  line_is_open_ = false;
}

}  // namespace heed
