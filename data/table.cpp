#include "heed/data/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/unicode.h"
#include "heed/data/text_file.h"

namespace heed {
namespace {

constexpr std::size_t most_fields = 65'536;

/// Checks that concern all rows of a file.
class RowChecks {
 public:
  /// Each row must be as wide as the first.
  void check_width(const TableRow& row, const TextLines& lines) {
    if (width_ == 0) width_ = row.fields.size();
    check(row.fields.size() == width_, lines.origin(), ":", row.line, ": the row has ", row.fields.size(),
          " fields, but the first row has ", width_);
  }
  void check_any(const TextLines& lines) const {
    check(width_ > 0, lines.origin(), ": there are ", lines.number(), " lines, but all are blank");
  }

 private:
  std::size_t width_ = 0;
};

/// Fields are counted as they are found, since a row of separators takes more memory as fields than as
/// text.
std::string& add_field(TableRow& row, const TextLines& lines) {
  check(row.fields.size() < most_fields, lines.place(), ": the row has more than ", most_fields,
        " fields; is this a table of texts?");
  return row.fields.emplace_back();
}

struct Delimiter {
  const char *name, *plural;
  char byte;
};
constexpr Delimiter delimiters[] = {
    {"comma", "commas", ','}, {"semicolon", "semicolons", ';'}, {"tab", "tabs", '\t'}};

/// That of a file by its first line.
const Delimiter& delimiter_of(std::string_view line) {
  for (const Delimiter& one : delimiters) {
    bool quoted = false;
    for (const char byte : line) {
      quoted ^= byte == '"';
      if (byte == one.byte && !quoted) return one;
    }
  }
  return delimiters[0];
}

/// Parses the lines of a file; a quoted field may span several lines.
class CsvParser {
 public:
  CsvParser(TextLines& lines, char delimiter, ReadReport* report)
      : lines_(lines), report_(report), delimiter_(delimiter) {}

  void rows(const TakeRow& take) {
    RowChecks checks;
    TableRow row;
    while (next_line()) {
      if (text_.empty()) {
        lines_.leave_out();
        continue;
      }
      if (delimiter_ == 0) find_delimiter();
      read(row);
      checks.check_width(row, lines_);
      take(row);
    }
    checks.check_any(lines_);
  }

 private:
  bool next_line() {
    const auto line = lines_.next();
    if (line) text_ = *line;
    at_ = 0;
    return line.has_value();
  }

  void find_delimiter() {
    const Delimiter& found = delimiter_of(text_);
    delimiter_ = found.byte;
    if (report_ && delimiter_ != ',')
      report_->remarks.push_back(
          concat_text(lines_.origin(), ": its fields are separated by ", found.plural));
  }

  void read(TableRow& row) {
    row.fields.clear();
    row.line = lines_.number();
    while (true) {
      std::string& field = add_field(row, lines_);
      if (at_ < text_.size() && text_[at_] == '"')
        read_quoted(field);
      else
        read_plain(field);
      if (at_ == text_.size()) return;
      ++at_;  // the delimiter
    }
  }

  void read_plain(std::string& field) {
    const std::size_t end = std::min(text_.find(delimiter_, at_), text_.size());
    field = text_.substr(at_, end - at_);
    check(field.find('"') == std::string::npos, lines_.place(),
          ": a quote inside an unquoted field: ", unicode::shortened(field, 40));
    at_ = end;
  }

  void read_quoted(std::string& field) {
    const std::size_t first_line = lines_.number();
    for (++at_;;) {
      const std::size_t quote = text_.find('"', at_);
      if (quote == std::string::npos) {
        field.append(text_.substr(at_)).push_back('\n');
        if (!next_line()) fail(lines_.origin(), ":", first_line, ": a quoted field is never closed");
        continue;
      }
      field.append(text_.substr(at_, quote - at_));
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] == delimiter_) return;
      check(text_[at_] == '"', lines_.place(), ": expected a ",
            std::ranges::find(delimiters, delimiter_, &Delimiter::byte)->name,
            " behind the closing quote, but found ", text_.substr(at_, 20));
      field.push_back('"');
      ++at_;
    }
  }

  TextLines& lines_;
  ReadReport* report_;
  char delimiter_;         // 0: not known yet
  std::string_view text_;  // of the line
  std::size_t at_ = 0;
};

}  // namespace

void read_csv(const TextInput& input, const TakeRow& take, const TextOptions& options, ReadReport* report,
              char delimiter) {
  TextLines lines(input, options, report);
  CsvParser(lines, delimiter, report).rows(take);
}

void read_tsv(const TextInput& input, const TakeRow& take, const TextOptions& options, ReadReport* report) {
  TextLines lines(input, options, report);
  RowChecks checks;
  TableRow row;
  while (const auto line = lines.next()) {
    if (line->empty()) {
      lines.leave_out();
      continue;
    }
    row.fields.clear();
    row.line = lines.number();
    for (std::size_t begin = 0; begin <= line->size();) {
      const std::size_t tab = std::min(line->find('\t', begin), line->size());
      add_field(row, lines) = line->substr(begin, tab - begin);
      begin = tab + 1;
    }
    checks.check_width(row, lines);
    take(row);
  }
  checks.check_any(lines);
}

// --- tables

namespace {

using Json = nlohmann::ordered_json;

// --- csv and tsv

/// The number of a column that is given by it.
std::optional<std::size_t> column_number(const std::string& column) {
  std::size_t number = 0;
  const char* const end = column.data() + column.size();
  const auto [at, error] = std::from_chars(column.data(), end, number);
  return at == end && error == std::errc() ? std::optional(number) : std::nullopt;
}

/// The index of a column given by number, or by name in the header.
std::size_t column_index(const std::string& column, const TableRow& first, std::string_view origin) {
  const std::vector<std::string>& fields = first.fields;
  if (const auto number = column_number(column)) {
    check(*number >= 1 && *number <= fields.size(), origin, ":", first.line, ": there is no column ", column,
          "; the rows have ", fields.size());
    return *number - 1;
  }
  const auto found = std::find(fields.begin(), fields.end(), column);
  check(found != fields.end(), origin, ":", first.line, ": there is no column \"", column, "\" among ",
        quoted_names(fields));
  check(std::find(found + 1, fields.end(), column) == fields.end(), origin, ":", first.line,
        ": the column \"", column, "\" occurs twice in the header: give its number");
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
      : options_(options),
        take_(take),
        origin_(origin),
        has_header_(options.header || !std::ranges::all_of(options.columns, [](const std::string& column) {
                      return column_number(column).has_value();
                    })) {}

  void row(TableRow& row) {
    if (indices_.empty()) {
      choose(row);
      if (has_header_) return;
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
      indices_.push_back(column_index(column, first, origin_));
    check_distinct(indices_, options_, origin_);
    if (!options_.others && !indices_.empty()) return;
    std::vector<bool> is_named(first.fields.size());
    for (const std::size_t index : indices_) is_named[index] = true;
    for (std::size_t i = 0; i < first.fields.size(); ++i) {
      if (is_named[i]) continue;
      indices_.push_back(i);
      names_.push_back(has_header_ ? first.fields[i] : std::to_string(i + 1));
    }
  }

  const TableOptions& options_;
  const TakeCells& take_;
  std::string_view origin_;
  bool has_header_;
  std::vector<std::size_t> indices_;
  std::vector<std::string> names_, first_, cells_;
  bool has_rows_ = false;
};

void rows_of_csv(const TextInput& input, const TableOptions& options, const TakeCells& take,
                 ReadReport* report) {
  const auto* const given = std::ranges::find(delimiters, options.delimiter, &Delimiter::name);
  check(options.delimiter.empty() || given != std::end(delimiters), "unknown delimiter \"", options.delimiter,
        "\": use one of ", quoted_names(table_delimiters()));
  ColumnPicker picker(options, take, input.origin);
  read_csv(
      input, [&](TableRow& row) { picker.row(row); }, options.text, report,
      options.delimiter.empty() ? '\0' : given->byte);
  picker.finish();
}

void rows_of_tsv(const TextInput& input, const TableOptions& options, const TakeCells& take,
                 ReadReport* report) {
  ColumnPicker picker(options, take, input.origin);
  read_tsv(
      input, [&](TableRow& row) { picker.row(row); }, options.text, report);
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

void rows_of_json_lines(const TextInput& input, const TableOptions& options, const TakeCells& take,
                        ReadReport* report) {
  TextLines lines(input, options.text, report);
  const std::string& origin = input.origin;
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
  void (*read)(const TextInput&, const TableOptions&, const TakeCells&, ReadReport*);
};

constexpr TableFormat table_kinds[] = {
    {"csv", ".csv", rows_of_csv}, {"tsv", ".tsv", rows_of_tsv}, {"jsonl", ".jsonl", rows_of_json_lines}};

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

std::vector<std::string> table_formats() {
  std::vector<std::string> names;
  for (const TableFormat& format : table_kinds) names.emplace_back(format.name);
  return names;
}

std::vector<std::string> table_delimiters() {
  std::vector<std::string> names;
  for (const Delimiter& one : delimiters) names.emplace_back(one.name);
  return names;
}

std::string table_format(const std::filesystem::path& path) {
  const std::filesystem::path name = path.extension() == ".gz" ? path.stem() : path.filename();
  for (const TableFormat& format : table_kinds)
    if (name.extension() == format.ending) return format.name;
  return "";
}

void read_table_rows(const TextInput& input, const TableOptions& options, const TakeCells& take,
                     ReadReport* report) {
  const std::string name = options.format.empty() ? table_format(input.origin) : options.format;
  check(!name.empty(), input.origin, ": its name does not say how it is laid out; give --format ",
        "csv, tsv or jsonl");
  const auto* const format = std::ranges::find(table_kinds, name, &TableFormat::name);
  check(format != std::end(table_kinds), "unknown format of tables, \"", name, "\": use one of ",
        quoted_names(table_formats()));
  check(options.delimiter.empty() || name == "csv", input.origin, ": a delimiter is for csv, not for ", name);
  format->read(input, options, take, report);
}

// --- word vectors

namespace {

/// The fields between single spaces; trailing spaces are ignored.
std::vector<std::string_view> fields_of(std::string_view line) {
  while (line.ends_with(' ')) line.remove_suffix(1);
  std::vector<std::string_view> fields;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    fields.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return fields;
}

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

void check_width(const std::string& place, std::int64_t found, std::int64_t width) {
  check(found == width, place, "the vectors have ", found, " numbers, but model.width is ", width,
        ": set model.width=", found, " (a multiple of model.heads), or take other vectors");
}

/// Reads the numbers at the end of a line into `values` and returns the word before them.
std::string_view read_vector(const std::string& place, std::string_view line,
                             std::span<const std::string_view> fields, std::span<float> values) {
  check(fields.size() > values.size(), place, "a word and ", values.size(),
        " numbers were expected, but there are ", fields.size(), " fields");
  const std::size_t first = fields.size() - values.size();
  for (std::size_t i = 0; i < values.size(); ++i)
    check(read_number(fields[first + i], values[i]) && std::isfinite(values[i]), place, "number ", i + 1,
          " is \"", unicode::shortened(fields[first + i], 40), "\"; finite numbers are expected");
  const std::string_view last = fields[first - 1];
  return line.substr(0, static_cast<std::size_t>(last.data() + last.size() - line.data()));
}

}  // namespace

void read_word_vectors(const std::string& path, std::int64_t width,
                       const std::function<void(std::string_view, std::span<const float>)>& visit) {
  check(std::filesystem::is_regular_file(path), path,
        std::filesystem::exists(path) ? ": not a file" : ": there is no such file");
  LineReader reader(path, {.bad_bytes = BadBytes::replace});
  std::int64_t count = 0, announced = -1, number = 0;
  std::vector<float> values(static_cast<std::size_t>(width));
  for (std::vector<InputLine> lines; !(lines = reader.next(1024)).empty();)
    for (const InputLine& line : lines) {
      ++number;
      const std::string place = concat_text(path, ":", number, ": ");
      check(line.error.empty(), place, line.error);
      const std::vector<std::string_view> fields = fields_of(line.text);
      std::int64_t vectors = 0, announced_width = 0;
      if (number == 1 && fields.size() == 2 && read_number(fields[0], vectors) &&
          read_number(fields[1], announced_width)) {
        check_width(place, announced_width, width);
        announced = std::max<std::int64_t>(vectors, 0);
        continue;
      }
      if (number == 1 && !fields.empty())
        check_width(place, static_cast<std::int64_t>(fields.size()) - 1, width);
      ++count;
      visit(read_vector(place, line.text, fields, values), values);
    }
  check(count > 0, path, ": there are no vectors in it");
  check(announced < 0 || announced == count, path, ": its first line says ", announced, " vectors, but ",
        count, " follow");
}

}  // namespace heed
