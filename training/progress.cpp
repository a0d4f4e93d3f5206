#include "heed/training/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/json.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

/// Returns a count as "950", "12.3k" or "1.2M".
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

/// A part of the progress line and its importance.
struct Piece {
  std::string text;
  int weight;
};

std::string joined(const std::vector<Piece>& parts) {
  std::string text;
  for (const Piece& part : parts) text += part.text;
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

/// Returns a bar "[=====> ] " with `width` characters inside.
std::string bar_text(const Progress& progress, int width) {
  const double share =
      progress.steps > 0 ? static_cast<double>(progress.step) / static_cast<double>(progress.steps) : 0;
  const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * width);
  std::string bar(static_cast<std::size_t>(width), ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < bar.size()) bar[filled] = '>';
  return concat_text('[', bar, "] ");
}

using Json = nlohmann::ordered_json;  // keeps keys in the order they are written, which reads best

constexpr const char* log_file = "metrics.jsonl";

Json object_of(const std::vector<std::pair<std::string, double>>& values) {
  JsonBuilder<Json> object("", 1, false);  // by itself an ordered object looks at all members for each
  object.start_object(values.size());
  for (const auto& [name, value] : values) {
    object.key(name);
    object.number_float(value, "");
  }
  object.end_object();
  return object.take();
}

/// Reads a number. JSON has no NaN: it is written as null and read back as NaN.
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::vector<std::pair<std::string, double>> values_of(const Json& line, const char* key) {
  std::vector<std::pair<std::string, double>> values;
  if (!line.contains(key)) return values;
  check(line.at(key).is_object(), "\"", key, "\" is not an object");
  for (const auto& [name, value] : line.at(key).items()) values.emplace_back(name, number_of(value));
  return values;
}

/// Calls take(line, number from 1) for each line of a text.
template <class Take>
void for_each_line(std::string_view text, const Take& take) {
  for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    take(text.substr(begin, end - begin), number);
    begin = end + 1;
  }
}

std::vector<Progress> records_in(std::string_view text) {
  std::vector<Progress> records;
  for_each_line(text, [&](std::string_view line, std::size_t) {
    try {
      records.push_back(parse_metrics_line(line));
    } catch (const Error&) {  // reported when the log was opened; other lines are still read
    }
  });
  return records;
}

}  // namespace

const Metric* first_not_finite(std::span<const Metric> metrics) {
  const auto found = std::ranges::find_if_not(
      metrics, [](double value) { return std::isfinite(value); }, &Metric::value);
  return found == metrics.end() ? nullptr : &*found;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const long long total = std::llround(std::min(seconds, 1e12));
  const long long days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60,
                  rest = total % 60;
  if (days > 0) return formatted("%lldd %02lld:%02lld:%02lld", days, hours, minutes, rest);
  if (hours > 0) return formatted("%lld:%02lld:%02lld", hours, minutes, rest);
  return formatted("%lld:%02lld", minutes, rest);
}

std::string metric_title(std::string_view name) {
  return name == "exact" ? "exact match" : std::string(name);
}

std::string progress_text(const Progress& progress, int columns) {
  if (progress.is_evaluation()) {
    std::vector<std::pair<std::string, double>> metrics = progress.metrics;
    for (auto& [name, value] : metrics) name = metric_title(name);
    return step_text(progress) + "  evaluation" + list_text(metrics) +
           (progress.how.empty() ? "" : "  (" + unicode::printable(progress.how) + ")") +
           (progress.is_best ? "  (kept)" : "");
  }
  std::vector<Piece> parts{
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
                                 [](const Piece& a, const Piece& b) { return a.weight < b.weight; }));
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

std::string metrics_line(const Progress& progress) {
  Json line{{"step", progress.step}, {"steps", progress.steps}, {"epoch", progress.epoch}};
  if (progress.is_evaluation()) {
    line["evaluation"] = object_of(progress.metrics);
    line["best"] = progress.is_best;
    if (progress.sample > 0) line["sample"] = progress.sample;
    if (!progress.how.empty()) line["how"] = progress.how;
  } else {
    line["loss"] = progress.loss;
    line["learning_rate"] = progress.learning_rate;
    line["gradient_norm"] = progress.gradient_norm;
    line["tokens_per_second"] = progress.tokens_per_second;
    if (progress.unit != Progress().unit) line["unit"] = progress.unit;
    if (progress.memory_bytes > 0) line["memory_bytes"] = progress.memory_bytes;
    if (!progress.auxiliary.empty()) line["auxiliary"] = object_of(progress.auxiliary);
  }
  line["elapsed_seconds"] = progress.elapsed_seconds;
  // A name that is not UTF-8 must not lose the line.
  return dumped(line);
}

Progress parse_metrics_line(std::string_view text) {
  try {
    const Json line = parse_json<Json>(text, "it", 4);
    Progress progress;
    progress.step = json_parts::count_in(line, "step");
    progress.steps = json_parts::count_in(line, "steps");
    progress.epoch = json_parts::count_in(line, "epoch");
    progress.elapsed_seconds = number_of(line.at("elapsed_seconds"));
    progress.metrics = values_of(line, "evaluation");
    progress.auxiliary = values_of(line, "auxiliary");
    if (line.contains("best")) progress.is_best = line.at("best").get<bool>();
    if (line.contains("sample")) progress.sample = json_parts::count_in(line, "sample");
    if (line.contains("how")) progress.how = line.at("how").get<std::string>();
    if (!line.contains("loss")) return progress;
    progress.loss = number_of(line.at("loss"));
    progress.learning_rate = number_of(line.at("learning_rate"));
    progress.gradient_norm = number_of(line.at("gradient_norm"));
    progress.tokens_per_second = number_of(line.at("tokens_per_second"));
    if (line.contains("unit")) progress.unit = line.at("unit").get<std::string>();
    if (line.contains("memory_bytes")) progress.memory_bytes = json_parts::count_in(line, "memory_bytes");
    return progress;
  } catch (const Json::exception& error) {
    fail("not a line of metrics: ", error.what());
  } catch (const Error& error) {
    fail("not a line of metrics: ", error.what());
  }
}

MetricsLog::MetricsLog(OpenFolder run, std::int64_t bytes, std::function<void(std::string_view)> remark)
    : run_(std::move(run)), path_(run_.path() / log_file), remark_(std::move(remark)) {
  try {
    open(bytes);
    is_open_ = true;
    check_lines();
  } catch (const Error& error) {
    report_failure(error.what());
  }
}

void MetricsLog::open(std::int64_t bytes) {
  if (!run_.has(log_file)) {
    if (bytes > 0 && remark_) remark_(concat_text(path_, " is missing: its previous lines are lost"));
    return;
  }
  const std::string text = run_.read(log_file);
  const auto size = static_cast<std::int64_t>(text.size());
  if (size < bytes && remark_)
    remark_(concat_text(path_, " has ", size, " bytes, but the checkpoint was made when it had ", bytes,
                        ": lines were removed from it"));
  bytes_ = std::min(bytes, size);
  needs_line_end_ = bytes_ > 0 && text[static_cast<std::size_t>(bytes_ - 1)] != '\n';
  if (size > bytes_) run_.cut(log_file, bytes_);
}

void MetricsLog::check_lines() const {
  if (bytes_ == 0 || !remark_) return;
  std::size_t bad = 0;
  std::string first;
  for_each_line(run_.read(log_file), [&](std::string_view line, std::size_t number) {
    try {
      parse_metrics_line(line);
    } catch (const Error& error) {
      if (++bad == 1) first = concat_text("line ", number, " is ", error.what());
    }
  });
  if (bad > 0)
    remark_(concat_text(path_, ", ", first, "; ", bad, bad == 1 ? " such line stays" : " such lines stay",
                        " in the file but not in the report"));
}

void MetricsLog::append(const Progress& progress) {
  if (!is_open_) return;
  std::string line = metrics_line(progress) + "\n";
  if (needs_line_end_) line.insert(0, 1, '\n');
  try {
    if (is_torn_) run_.cut(log_file, bytes_);
    is_torn_ = true;
    run_.append(log_file, line);
    is_torn_ = needs_line_end_ = failure_is_said_ = false;
    bytes_ += static_cast<std::int64_t>(line.size());
  } catch (const Error& error) {
    report_failure(error.what());
  }
}

std::int64_t MetricsLog::sync() {
  try {
    if (bytes_ > 0) run_.sync(log_file);
  } catch (const Error& error) {
    report_failure(error.what());
  }
  return bytes_;
}

std::vector<Progress> MetricsLog::records() const {
  return bytes_ == 0 || !run_.has(log_file) ? std::vector<Progress>() : records_in(run_.read(log_file));
}

std::vector<Progress> read_metrics(const std::filesystem::path& path) {
  return path_exists(path) ? records_in(read_file(path)) : std::vector<Progress>();
}

/// Reports a failure once, until a line is written again.
void MetricsLog::report_failure(std::string_view reason) {
  if (!std::exchange(failure_is_said_, true) && remark_)
    remark_(concat_text("training continues, but lines of metrics are lost: ", reason));
}

}  // namespace heed
