#include "heed/tasks/pair_data.h"

#include <algorithm>
#include <limits>

#include "heed/data/labelled_text.h"
#include "heed/data/table.h"
#include "heed/tasks/recipe.h"

namespace heed {
namespace {

std::string setting_of(const std::string& part, const std::string& name) {
  return "data." + (part == "train" ? "" : part + "_") + name;
}

/// "data.valid_source" is "--valid-source".
std::string flag_of(std::string setting) {
  setting = "--" + setting.substr(setting.find('.') + 1);
  std::replace(setting.begin(), setting.end(), '_', '-');
  return setting == "--file" ? "--data" : setting;
}

/// The files of a part ("train", "valid", "test"): a table, a source and a target, or none.
std::vector<std::string> files_of(const Settings& settings, const std::string& part) {
  const std::string table = "data." + (part == "train" ? "file" : part);
  const std::string source = setting_of(part, "source"), target = setting_of(part, "target");
  const auto value = [&](const std::string& name) { return settings.get<std::string>(name); };
  if (value(source).empty() != value(target).empty())
    throw SettingsError(flag_of(source) + " and " + flag_of(target) + " go together, but only one is given");
  if (!value(table).empty() && !value(source).empty())
    throw SettingsError("give " + flag_of(table) + ", a table of pairs, or " + flag_of(source) + " and " +
                        flag_of(target) + ", not both");
  if (!value(table).empty()) return {value(table)};
  if (!value(source).empty()) return {value(source), value(target)};
  return {};
}

/// The text of a cell as one line.
std::string_view as_line(std::string& cell) {
  std::ranges::replace(cell, '\n', ' ');
  return cell;
}

ParallelText read_pair_table(const Settings& settings, const std::string& path, ReadReport& report) {
  TableOptions options;
  options.format = settings.get<std::string>("data.format");
  if (options.format.empty()) options.format = table_format(path);
  if (options.format.empty())
    throw SettingsError(path + ": its name does not say how it is laid out; give --format csv, tsv or jsonl");
  const bool named = options.format == "jsonl";
  const auto column = [&](const char* setting, const char* number, const char* name) {
    const auto given = settings.get<std::string>(setting);
    return given.empty() ? std::string(named ? name : number) : given;
  };
  options.columns = {column("data.source_column", "1", "source"),
                     column("data.target_column", "2", "target")};
  options.header = !named && settings.get<bool>("data.header");
  options.text = text_options(settings);
  ParallelText pairs;
  read_table_rows(
      path, options,
      [&](const TableCells& row) {
        pairs.source.push_back(as_line(row.cells[0]));
        pairs.target.push_back(as_line(row.cells[1]));
      },
      &report);
  return pairs;
}

}  // namespace

void declare_pairs(Settings& settings, double valid_fraction) {
  settings.text("data.source", "", "Texts to learn from, one a line; plain or gzip");
  settings.text("data.target", "", "What is to be written for them, line by line");
  settings.text("data.valid_source", "", "Texts to measure progress on");
  settings.text("data.valid_target", "", "What is to be written for them");
  settings.text("data.test_source", "", "Texts to measure with at the end");
  settings.text("data.test_target", "", "What is to be written for them");
  settings.text("data.file", "", "In place of data.source and data.target: a table with both, plain or gzip");
  settings.text("data.valid", "", "A table to measure progress on");
  settings.text("data.test", "", "A table to measure with at the end");
  settings.number("data.valid_fraction", valid_fraction, 0, 0.999,
                  "Share of the pairs to measure progress on, where no file is named for that");
  settings.integer("data.split_seed", 1, 0, std::numeric_limits<std::int64_t>::max(),
                   "Seed of which pairs these are");
  std::vector<std::string> formats = table_formats();
  formats.insert(formats.begin(), "");
  settings.choice("data.format", "", formats, "How tables are laid out; empty: by the name of the file");
  settings.flag("data.header", false, "Whether the first row of a table holds the names of its columns");
  settings.text(
      "data.source_column", "",
      "Column of the sources: a number from 1, or a name; empty: 1, or \"source\" in lines of JSON");
  settings.text(
      "data.target_column", "",
      "Column of the targets: a number from 1, or a name; empty: 2, or \"target\" in lines of JSON");
  declare_text(settings);
}

bool names_pairs(const Settings& settings) {
  const bool train = !files_of(settings, "train").empty();
  for (const std::string part : {"valid", "test"})
    if (!files_of(settings, part).empty() && !train)
      throw SettingsError(
          (part == "valid" ? "validation" : part) +
          std::string(" files need pairs to learn from: --source and --target too, or --data"));
  return train;
}

PairParts read_pair_parts(const Settings& settings, ReadReport& report) {
  const auto read = [&](const std::string& part) {
    const std::vector<std::string> files = files_of(settings, part);
    return files.empty() ? ParallelText() : read_pairs(settings, files, report);
  };
  PairParts parts{read("train"), read("valid"), read("test")};
  const auto fraction = settings.get<double>("data.valid_fraction");
  if (parts.valid.size() > 0 || fraction == 0) return parts;
  PairParts drawn = split_pairs(parts.train, fraction,
                                static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed")));
  drawn.test = std::move(parts.test);
  return drawn;
}

ParallelText read_pairs(const Settings& settings, std::span<const std::string> files, ReadReport& report) {
  if (files.size() == 1) return read_pair_table(settings, files[0], report);
  if (files.size() != 2) throw SettingsError("--source and --target go together, but only one is given");
  return read_parallel_text(files[0], files[1], text_options(settings), &report);
}

PairParts split_pairs(const ParallelText& pairs, double valid_fraction, std::uint64_t seed) {
  SplitOptions options;
  options.valid_fraction = valid_fraction;
  options.seed = seed;
  TextParts parts = split_text({pairs.source, pairs.target, {}}, options);
  const auto as_pairs = [](LabelledText& text) {
    return ParallelText{std::move(text.texts), std::move(text.labels)};
  };
  return {as_pairs(parts.train), as_pairs(parts.valid), {}};
}

}  // namespace heed
