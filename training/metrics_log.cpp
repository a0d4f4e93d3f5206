#include "heed/training/metrics_log.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "heed/core/error.h"
#include "heed/core/file.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;  // a line reads best in the order it is written in

json object_of(const std::vector<std::pair<std::string, double>>& values) {
  json object = json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

/// JSON has no NaN: it is written as null, and read as NaN again.
double number_of(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::vector<std::pair<std::string, double>> values_of(const json& line, const char* key) {
  std::vector<std::pair<std::string, double>> values;
  if (!line.contains(key)) return values;
  for (const auto& [name, value] : line.at(key).items()) values.emplace_back(name, number_of(value));
  return values;
}

}  // namespace

std::string metrics_line(const Progress& progress) {
  json line{{"step", progress.step}, {"steps", progress.steps}, {"epoch", progress.epoch}};
  if (progress.is_evaluation()) {
    line["evaluation"] = object_of(progress.metrics);
    line["best"] = progress.is_best;
  } else {
    line["loss"] = progress.loss;
    line["learning_rate"] = progress.learning_rate;
    line["gradient_norm"] = progress.gradient_norm;
    line["tokens_per_second"] = progress.tokens_per_second;
    if (!progress.auxiliary.empty()) line["auxiliary"] = object_of(progress.auxiliary);
  }
  line["elapsed_seconds"] = progress.elapsed_seconds;
  return line.dump();
}

Progress parse_metrics_line(std::string_view text) {
  try {
    const json line = json::parse(text.begin(), text.end());
    Progress progress;
    progress.step = line.at("step").get<std::int64_t>();
    progress.steps = line.at("steps").get<std::int64_t>();
    progress.epoch = line.at("epoch").get<std::int64_t>();
    progress.elapsed_seconds = number_of(line.at("elapsed_seconds"));
    progress.metrics = values_of(line, "evaluation");
    progress.auxiliary = values_of(line, "auxiliary");
    if (line.contains("best")) progress.is_best = line.at("best").get<bool>();
    if (!line.contains("loss")) return progress;
    progress.loss = number_of(line.at("loss"));
    progress.learning_rate = number_of(line.at("learning_rate"));
    progress.gradient_norm = number_of(line.at("gradient_norm"));
    progress.tokens_per_second = number_of(line.at("tokens_per_second"));
    return progress;
  } catch (const json::exception& error) {
    fail("not a line of metrics: ", error.what());
  }
}

MetricsLog::MetricsLog(std::filesystem::path path, std::int64_t bytes)
    : path_(std::move(path)), bytes_(bytes) {
  check(bytes >= 0, "the length of ", path_, " in the checkpoint is negative");
  std::error_code error;
  const std::uintmax_t size = fs::exists(path_) ? fs::file_size(path_, error) : 0;
  check(!error, "cannot read ", path_, ": ", error.message());
  check(size >= static_cast<std::uintmax_t>(bytes), path_, " has ", size,
        " bytes, but the checkpoint was made when it had ", bytes, "; lines were removed from it");
  if (size == static_cast<std::uintmax_t>(bytes)) return;
  fs::resize_file(path_, static_cast<std::uintmax_t>(bytes), error);
  check(!error, "cannot cut ", path_, " to the length in the checkpoint: ", error.message());
}

void MetricsLog::append(const Progress& progress) {
  const std::string line = metrics_line(progress) + "\n";
  append_to_file(path_, line);
  bytes_ += static_cast<std::int64_t>(line.size());
}

std::int64_t MetricsLog::sync() const {
  if (bytes_ > 0) sync_path(path_);
  return bytes_;
}

std::vector<Progress> MetricsLog::records() const {
  std::vector<Progress> records;
  if (bytes_ == 0) return records;
  const std::string text = read_file(path_);
  for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    try {
      records.push_back(parse_metrics_line(std::string_view(text).substr(begin, end - begin)));
    } catch (const Error& error) {
      fail(path_, ", line ", number, ": ", error.what());
    }
    begin = end + 1;
  }
  return records;
}

}  // namespace heed
