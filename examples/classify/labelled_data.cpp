#include "labelled_data.h"

#include <filesystem>

#include "../common/program.h"
#include "heed/core/error.h"
#include "heed/data/document_folders.h"
#include "heed/data/labelled_csv.h"
#include "heed/data/labelled_lines.h"
#include "heed/data/listops.h"

namespace heed::programs {
namespace {

namespace fs = std::filesystem;

std::string format_of(const Settings& settings, const std::string& path) {
  const auto format = settings.get<std::string>("data.format");
  if (!format.empty()) {
    check_name("data format", format, {"lines", "csv", "folders"});
    return format;
  }
  check(fs::exists(path), path, ": there is no such file or folder");
  if (fs::is_directory(path)) return "folders";
  if (path.ends_with(".csv") || path.ends_with(".csv.gz")) return "csv";
  throw UsageError(path +
                   ": its name does not say how it is laid out; give --format lines (a label, a space and a "
                   "text on each line) or --format csv");
}

CsvColumns csv_columns(const Settings& settings) {
  CsvColumns columns;
  columns.label = settings.get<std::int64_t>("data.label_column");
  for (const Json& column : settings.at("data.text_columns")) {
    if (!column.is_number_integer())
      throw UsageError("data.text_columns must be a list of column numbers, not " + column.dump());
    columns.texts.push_back(column.get<std::int64_t>());
  }
  columns.header = settings.get<bool>("data.header");
  return columns;
}

Encoding encoding_of(const Settings& settings) {
  const auto name = settings.get<std::string>("data.encoding");
  check_name("text encoding", name, {"utf-8", "latin-1", "cp1252"});
  return encoding_from_name(name);
}

SplitOptions split_options(const Settings& settings) {
  SplitOptions options;
  options.valid_fraction = settings.get<double>("data.valid_fraction");
  options.test_fraction = settings.get<double>("data.test_fraction");
  options.seed = settings.get<std::uint64_t>("data.split_seed");
  return options;
}

LabelledText short_expressions(const Settings& settings) {
  ListOpsRule rule;
  rule.max_depth = settings.get<std::int64_t>("data.listops.max_depth");
  rule.max_arguments = settings.get<std::int64_t>("data.listops.max_arguments");
  rule.longer_than = settings.get<std::int64_t>("data.listops.longer_than");
  rule.shorter_than = settings.get<std::int64_t>("data.listops.shorter_than");
  // The texts do not follow the run's seed: runs with other seeds are compared on the same ones.
  return draw_listops(settings.get<std::uint64_t>("data.split_seed"),
                      settings.get<std::int64_t>("data.listops.count"), rule);
}

}  // namespace

Json data_defaults() {
  return {
      {"file", ""},
      {"valid", ""},
      {"format", ""},
      {"encoding", "utf-8"},
      {"label_column", 1},
      {"text_columns", Json::array()},
      {"header", false},
      {"valid_fraction", 0.1},
      {"test_fraction", 0.0},
      {"split_seed", 1},
      {"max_tokens", 256},
      {"long_texts", "error"},
      {"listops",
       {{"count", 20000}, {"max_depth", 4}, {"max_arguments", 5}, {"longer_than", 3}, {"shorter_than", 30}}}};
}

void add_format_flags(SettingFlags& flags) {
  flags.text("--format", "data.format",
             "lines (label, space, text), csv, or folders (one for each class, a file for each document); "
             "a folder and a .csv file need not be told",
             "NAME");
  flags.text("--encoding", "data.encoding", "utf-8, latin-1 or cp1252 (Windows-1252); it is never guessed",
             "NAME");
}

void add_data_flags(SettingFlags& flags) {
  flags.text("--data", "data.file", "Labelled texts to learn from: a file (plain or gzip) or a folder",
             "PATH");
  flags.text("--valid", "data.valid",
             "Labelled texts to measure progress on; without it a part of --data is held out", "PATH");
  add_format_flags(flags);
  flags.number("--valid-fraction", "data.valid_fraction",
               "Share of --data that is held out to measure progress on, where there is no --valid");
  flags.number("--test-fraction", "data.test_fraction",
               "Share of --data that is held out for evaluate --part test");
}

bool has_data(const Settings& settings) {
  const bool file = !settings.get<std::string>("data.file").empty();
  if (!file && !settings.get<std::string>("data.valid").empty()) throw UsageError("--valid needs --data too");
  return file;
}

LabelledText read_labelled_text(const Settings& settings, const std::string& path) {
  const std::string format = format_of(settings, path);
  const Encoding encoding = encoding_of(settings);
  if (format == "folders") return read_document_folders(path, encoding);
  if (format == "csv") return read_labelled_csv(path, csv_columns(settings), encoding);
  return read_labelled_lines(path, encoding);
}

TextParts load_text(const Settings& settings) {
  SplitOptions options = split_options(settings);
  if (!has_data(settings)) return split_text(short_expressions(settings), options);
  const LabelledText text = read_labelled_text(settings, settings.get<std::string>("data.file"));
  const auto valid = settings.get<std::string>("data.valid");
  if (valid.empty()) return split_text(text, options);
  options.valid_fraction = 0;
  TextParts parts = split_text(text, options);
  parts.valid = read_labelled_text(settings, valid);
  return parts;
}

}  // namespace heed::programs
