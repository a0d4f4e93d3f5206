#include "heed/apps/tasks/example_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heed/base/names.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// Returns the number of required columns.
std::size_t required_columns(const ExampleTable& table) {
  return static_cast<std::size_t>(std::ranges::count(table.columns, false, &ExampleColumn::optional));
}

/// Throws for a cell that is not text, or not a name if one is required.
void check_cell(const std::string& cell, const ExampleColumn& column, const auto& at) {
  if (const std::size_t byte = unicode::find_invalid(cell); byte != std::string::npos)
    fail(at(), " is not UTF-8 at byte ", byte + 1);
  if (const std::size_t nul = cell.find('\0'); nul != std::string::npos)
    fail(at(), " holds a NUL at byte ", nul + 1, "; examples are texts");
  if (!column.is_name) return;
  check(cell.find_first_of("\t\n\r") == std::string::npos, at(), " is \"", unicode::shortened(cell, 80),
        "\": a name has neither tabs nor line breaks");
}

/// Returns the content of the file with the rows.
std::string content_of(const TaskEntry& entry, const ExampleTable& table, const Examples& examples) {
  const std::size_t given = examples.columns.size();
  std::vector<std::string> names;
  for (const ExampleColumn& column : table.columns)
    names.push_back(concat_text(column.name, column.optional ? " (may be left out)" : ""));
  check(given >= required_columns(table) && given <= table.columns.size(), entry.name, ": the examples of \"",
        examples.part, "\" have ", given, given == 1 ? " column" : " columns", ", but expected are ",
        listed(names));
  const std::size_t rows = examples.columns[0].size();
  for (std::size_t c = 1; c < given; ++c)
    check(examples.columns[c].size() == rows, entry.name, ": the columns of \"", examples.part,
          "\" have different lengths: ", rows, " of ", table.columns[0].name, " and ",
          examples.columns[c].size(), " of ", table.columns[c].name);
  check(rows > 0, entry.name, ": the examples of \"", examples.part, "\" are empty");
  std::string content;
  std::vector<std::string> row(given);
  for (std::size_t i = 0; i < rows; ++i) {
    Json object;
    for (std::size_t c = 0; c < given; ++c) {
      row[c] = examples.columns[c][i];
      check_cell(row[c], table.columns[c], [&] {
        return concat_text(entry.name, ": row ", i, " of \"", examples.part, "\": the ",
                           table.columns[c].name);
      });
      if (!table.line) object[std::string(table.columns[c].name)] = row[c];
    }
    content += table.line ? table.line(row, i + 1) : object.dump();
    content += '\n';
  }
  return content;
}

std::string part_setting(const std::string& part) {
  return part == "train" ? "data.file" : "data." + part;
}

}  // namespace

void rebase_data_paths(Settings& settings, const fs::path& from, const fs::path& to) {
  const std::string begin = from.string() + "/";
  for (const Setting& one : settings.declared()) {
    if (!one.name.starts_with("data.") || one.kind != Setting::Kind::text) continue;
    const auto value = settings.get<std::string>(one.name);
    if (value.starts_with(begin))
      settings.set(one.name, (to / value.substr(begin.size())).string(), "config.json");
  }
}

Settings example_layout(const TaskEntry& entry, Settings settings) {
  const ExampleTable& table = entry.examples.front();
  apply_table_layout(table, required_columns(table), settings);
  return settings;
}

ExampleFiles::ExampleFiles(const TaskEntry& entry, std::span<const Examples> examples) : entry_(entry) {
  check(!entry.examples.empty(), "the task ", entry.name, " accepts no examples from memory; name files");
  for (const Examples& part : examples) {
    check(std::ranges::count(parts_, part.part) == 0, entry.name, ": the examples of \"", part.part,
          "\" are given twice");
    parts_.push_back(part.part);
    if (part.part == "train") train_columns_ = part.columns.size();
    files_[name_of(part.part)] = content_of(entry, find_table(part.part), part);
  }
  for (const auto& [name, content] : files_) write_output(folder_ / name, content, false);
}

const ExampleTable& ExampleFiles::find_table(const std::string& part) const {
  const Settings settings = entry_.settings(true);
  std::vector<std::string> known;
  for (const char* name : {"train", "valid", "test"})
    if (settings.has(part_setting(name))) known.emplace_back(name);
  if (std::ranges::count(known, part) > 0) return entry_.examples.front();
  for (const ExampleTable& table : entry_.examples) {
    if (!table.name.empty() && table.name == part) return table;
    if (!table.name.empty()) known.emplace_back(table.name);
  }
  fail(entry_.name, " has no examples of the name '", part, "'", suggest_name(part, known), "; there are ",
       listed(known));
}

std::string ExampleFiles::name_of(const std::string& part) const {
  return concat_text(part, '.', find_table(part).ending);
}

std::string ExampleFiles::path_of(const Examples& examples) const {
  return (folder_ / name_of(examples.part)).string();
}

void ExampleFiles::set_paths(Settings& settings) const {
  if (std::ranges::count(parts_, "train") == 0)
    throw SettingsError(
        concat_text(entry_.name, ": there are no training examples: give the part \"train\""));
  for (const Setting& one : settings.declared())
    if (is_layout(one) && settings.json(one.name) != one.initial)
      throw SettingsError(
          concat_text(one.name, " is for files, but the examples are in memory: leave it out"));
  for (const std::string& part : parts_) {
    const std::string setting = part_setting(part);
    if (!settings.get<std::string>(setting).empty())
      throw SettingsError(
          concat_text(setting, " names a file, and examples of \"", part, "\" are in memory: give one"));
  }
  apply_table_layout(entry_.examples.front(), train_columns_, settings);
  for (const std::string& part : parts_)
    settings.set(part_setting(part), (folder_ / name_of(part)).string(), "examples");
}

}  // namespace heed
