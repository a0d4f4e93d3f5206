#include "heed/data/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heed/core/error.h"
#include "heed/core/json_text.h"
#include "heed/core/unicode.h"
#include "heed/data/csv.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

// --- csv and tsv

/// The index of a column that is given by its number, or by its name in the header.
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

Table from_rows(const std::vector<TableRow>& rows, std::string_view origin, const TableOptions& options) {
  const TableRow& first = rows.front();
  const std::size_t begin = options.header ? 1 : 0;
  check(rows.size() > begin, origin, ": there is nothing but a header");
  Table table;
  table.names = options.columns;
  std::vector<std::size_t> indices;
  for (const std::string& column : options.columns)
    indices.push_back(column_index(column, first, options.header, origin));
  check_distinct(indices, options, origin);
  const std::vector<std::size_t> named = indices;
  for (std::size_t i = 0; (options.others || named.empty()) && i < first.fields.size(); ++i) {
    if (std::find(named.begin(), named.end(), i) != named.end()) continue;
    indices.push_back(i);
    table.names.push_back(options.header ? first.fields[i] : std::to_string(i + 1));
  }
  for (const std::size_t index : indices) {
    std::vector<std::string>& texts = table.columns.emplace_back();
    for (std::size_t i = begin; i < rows.size(); ++i) texts.push_back(rows[i].fields[index]);
  }
  for (std::size_t i = begin; i < rows.size(); ++i)
    table.places.push_back(concat_text(origin, ":", rows[i].line));
  return table;
}

Table parse_csv_table(std::string_view bytes, std::string_view origin, const TableOptions& options,
                      ReadReport* report) {
  return from_rows(parse_csv(bytes, origin, options.text, report), origin, options);
}

Table parse_tsv_table(std::string_view bytes, std::string_view origin, const TableOptions& options,
                      ReadReport* report) {
  return from_rows(parse_tsv(bytes, origin, options.text, report), origin, options);
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

Table parse_json_lines(std::string_view bytes, std::string_view origin, const TableOptions& options,
                       ReadReport* report) {
  check(!options.header, origin, ": a header is for csv and tsv; each line of jsonl names its columns");
  check_distinct(options.columns, options, origin);
  Table table;
  table.names = options.columns;
  for (const std::string& line : parse_lines(bytes, origin, options.text, report)) {
    const std::string place = concat_text(origin, ":", table.places.size() + 1);
    const Json object = parse_written_json<Json>(line, place);
    check(object.is_object(), place, ": expected a JSON object, not ", object.type_name());
    if (table.places.empty()) {
      if (options.others || options.columns.empty())
        for (const std::string& key : keys_of(object))
          if (!has(options.columns, key)) table.names.push_back(key);
      table.columns.resize(table.names.size());
    }
    for (std::size_t i = 0; i < table.names.size(); ++i)
      table.columns[i].push_back(member_text(object, table.names[i], place));
    table.places.push_back(place);
  }
  return table;
}

// --- the formats

struct TableFormat {
  const char* name;
  const char* ending;  // of the names of such files, ".gz" left out
  Table (*parse)(std::string_view, std::string_view, const TableOptions&, ReadReport*);
};

constexpr TableFormat table_kinds[] = {{"csv", ".csv", parse_csv_table},
                                       {"tsv", ".tsv", parse_tsv_table},
                                       {"jsonl", ".jsonl", parse_json_lines}};

}  // namespace

std::string quoted_names(std::span<const std::string> names) {
  constexpr std::size_t shown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), shown); ++i)
    text += (text.empty() ? "\"" : ", \"") + unicode::shortened(names[i], 80) + "\"";
  if (names.size() > shown) text += concat_text(" and ", names.size() - shown, " more");
  return text;
}

const std::vector<std::string>& Table::column(std::string_view name) const {
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

Table parse_table(std::string_view bytes, std::string_view origin, const TableOptions& options,
                  ReadReport* report) {
  for (const TableFormat& format : table_kinds)
    if (options.format == format.name) return format.parse(bytes, origin, options, report);
  fail("unknown format of tables, \"", options.format, "\": use one of ", quoted_names(table_formats()));
}

Table read_table(const std::filesystem::path& path, const TableOptions& options, ReadReport* report) {
  TableOptions named = options;
  if (named.format.empty()) named.format = table_format(path);
  check(!named.format.empty(), path.string(), ": its name does not say how it is laid out; give --format ",
        "csv, tsv or jsonl");
  return parse_table(read_limited_file(path, options.text), path.string(), named, report);
}

}  // namespace heed
