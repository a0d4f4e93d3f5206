#include "heed/data/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/unicode.h"
#include "heed/data/text_file.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

// --- csv and tsv

/// The index of a column given by number, or by name in the header.
std::size_t column_index(const std::string& column, const TableRow& first, bool header,
                         std::string_view origin) {
  const std::vector<std::string>& fields = first.fields;
  std::size_t number = 0;
  const char* const end = column.data() + column.size();
  if (const auto [at, error] = std::from_chars(column.data(), end, number);
      at == end && error == std::errc()) {
    check(number >= 1 && number <= fields.size(), origin, ":", first.line, ": there is no column ", column,
          "; the rows have ", fields.size());
    return number - 1;
  }
  check(header, origin, ": there is no column \"", column,
        "\", because no header names the columns: give its number, from 1, or set header");
  const auto found = std::find(fields.begin(), fields.end(), column);
  check(found != fields.end(), origin, ":", first.line, ": there is no column \"", column, "\" among ",
        quoted_names(fields));
  check(std::find(found + 1, fields.end(), column) == fields.end(), origin, ":", first.line,
        ": the column \"", column, "\" stands twice in the header: give its number");
  return static_cast<std::size_t>(found - fields.begin());
}

void check_distinct(const auto& found, const TableOptions& options, std::string_view origin) {
  for (std::size_t i = 0; options.distinct && i < found.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      check(found[i] != found[j], origin, ": the columns \"", options.columns[j], "\" and \"",
            options.columns[i], "\" are one; name each once");
}

/// Picks the selected columns from the rows of csv and tsv.
class ColumnPicker {
 public:
  ColumnPicker(const TableOptions& options, const TakeCells& take, std::string_view origin)
      : options_(options), take_(take), origin_(origin) {}

  void row(TableRow& row) {
    if (indices_.empty()) {
      choose(row);
      if (options_.header) return;
    }
    has_rows_ = true;
    cells_.resize(indices_.size());
    for (std::size_t i = 0; i < indices_.size(); ++i) cells_[i] = row.fields[indices_[i]];
    take_({names_, first_, cells_, origin_, row.line});
  }
  void finish() const { check(has_rows_, origin_, ": there is nothing but a header"); }

 private:
  void choose(const TableRow& first) {
    first_ = first.fields;
    names_ = options_.columns;
    for (const std::string& column : options_.columns)
      indices_.push_back(column_index(column, first, options_.header, origin_));
    check_distinct(indices_, options_, origin_);
    if (!options_.others && !indices_.empty()) return;
    std::vector<bool> is_named(first.fields.size());
    for (const std::size_t index : indices_) is_named[index] = true;
    for (std::size_t i = 0; i < first.fields.size(); ++i) {
      if (is_named[i]) continue;
      indices_.push_back(i);
      names_.push_back(options_.header ? first.fields[i] : std::to_string(i + 1));
    }
  }

  const TableOptions& options_;
  const TakeCells& take_;
  std::string_view origin_;
  std::vector<std::size_t> indices_;
  std::vector<std::string> names_, first_, cells_;
  bool has_rows_ = false;
};

template <void (*read)(TextLines, const TakeRow&)>
// NOLINTNEXTLINE(performance-unnecessary-value-param): moved into read
void rows_between_separators(TextLines lines, const TableOptions& options, const TakeCells& take) {
  const std::string origin = lines.origin();
  ColumnPicker picker(options, take, origin);
  read(std::move(lines), [&](TableRow& row) { picker.row(row); });
  picker.finish();
}

// --- jsonl

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string member_text(const Json& object, const std::string& name, const std::string& place) {
  const auto found = object.find(name);
  check(found != object.end(), place, ": there is no \"", name, "\" among ", quoted_names(keys_of(object)));
  if (found->is_string()) return found->get<std::string>();
  check(found->is_number() || found->is_boolean(), place, ": \"", name,
        "\" must be a text, a number, true or false, not ", found->type_name());
  check(!found->is_number_float() || std::abs(found->get<double>()) < 0x1p53, place, ": the number \"", name,
        "\" has more digits than are kept; write it as a text, in quotes");
  return found->dump();
}

void rows_of_json_lines(TextLines lines, const TableOptions& options, const TakeCells& take) {
  const std::string& origin = lines.origin();
  check(!options.header, origin, ": a header is for csv and tsv; each line of jsonl names its columns");
  check_distinct(options.columns, options, origin);
  std::vector<std::string> names = options.columns, first, cells;
  while (const auto line = lines.next()) {
    const std::string place = lines.place();
    const Json object = parse_written_json<Json>(std::string(*line), place);
    check(object.is_object(), place, ": expected a JSON object, not ", object.type_name());
    if (lines.number() == 1) {
      first = keys_of(object);
      if (options.others || options.columns.empty())
        for (const std::string& key : first)
          if (!has(options.columns, key)) names.push_back(key);
    }
    cells.clear();
    for (const std::string& name : names) cells.push_back(member_text(object, name, place));
    take({names, first, cells, origin, lines.number()});
  }
}

// --- the formats

struct TableFormat {
  const char* name;
  const char* ending;  // of file names, without ".gz"
  void (*rows)(TextLines, const TableOptions&, const TakeCells&);
};

constexpr TableFormat table_kinds[] = {{"csv", ".csv", rows_between_separators<rows_of_csv>},
                                       {"tsv", ".tsv", rows_between_separators<rows_of_tsv>},
                                       {"jsonl", ".jsonl", rows_of_json_lines}};

const TableFormat& table_kind(const std::string& name) {
  for (const TableFormat& format : table_kinds)
    if (name == format.name) return format;
  fail("unknown format of tables, \"", name, "\": use one of ", quoted_names(table_formats()));
}

const TableFormat& format_of_table(const std::filesystem::path& path, const TableOptions& options) {
  const std::string name = options.format.empty() ? table_format(path) : options.format;
  check(!name.empty(), path.string(), ": its name does not say how it is laid out; give --format ",
        "csv, tsv or jsonl");
  return table_kind(name);
}

/// Collects the rows that `read` produces in a table.
template <class Read>
Table table_of(const Read& read) {
  Table table;
  read([&](const TableCells& row) {
    if (table.columns.empty()) {
      table.names = row.names;
      table.columns.resize(row.names.size());
    }
    for (std::size_t i = 0; i < row.cells.size(); ++i) table.columns[i].push_back(row.cells[i]);
    table.places.add(row.origin, row.line);
  });
  return table;
}

}  // namespace

std::string quoted_names(std::span<const std::string> names) {
  constexpr std::size_t shown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), shown); ++i)
    text += (text.empty() ? "\"" : ", \"") + unicode::shortened(names[i], 80) + "\"";
  if (names.size() > shown) text += concat_text(" and ", names.size() - shown, " more");
  return text;
}

std::string TableCells::place() const {
  return concat_text(origin, ":", line);
}

const TextList& Table::column(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  check(found != names.end(), "there is no column \"", name, "\" among ", quoted_names(names));
  return columns[static_cast<std::size_t>(found - names.begin())];
}

std::vector<std::string> table_formats() {
  std::vector<std::string> names;
  for (const TableFormat& format : table_kinds) names.emplace_back(format.name);
  return names;
}

std::string table_format(const std::filesystem::path& path) {
  const std::filesystem::path name = path.extension() == ".gz" ? path.stem() : path.filename();
  for (const TableFormat& format : table_kinds)
    if (name.extension() == format.ending) return format.name;
  return "";
}

void parse_table_rows(std::string_view bytes, std::string_view origin, const TableOptions& options,
                      const TakeCells& take, ReadReport* report) {
  table_kind(options.format).rows({TextInput(bytes, origin), options.text, report}, options, take);
}

void read_table_rows(const std::filesystem::path& path, const TableOptions& options, const TakeCells& take,
                     ReadReport* report) {
  format_of_table(path, options).rows({TextInput(path), options.text, report}, options, take);
}

Table parse_table(std::string_view bytes, std::string_view origin, const TableOptions& options,
                  ReadReport* report) {
  return table_of([&](const TakeCells& take) { parse_table_rows(bytes, origin, options, take, report); });
}

Table read_table(const std::filesystem::path& path, const TableOptions& options, ReadReport* report) {
  return table_of([&](const TakeCells& take) { read_table_rows(path, options, take, report); });
}

}  // namespace heed
