#include "heed/apps/data/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"
#include "heed/base/json.h"
#include "heed/base/names.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

constexpr std::size_t most_fields = 65'536;

/// Calls `take` with a row for each line that is not empty. `read` fills in its fields and may read
/// further lines. Each row must be as wide as the first.
void read_rows(TextLines& lines, const TakeRow& take,
               const std::function<void(std::string_view line, TableRow& row)>& read) {
  TableRow row;
  std::size_t width = 0;
  while (const auto line = lines.next()) {
    if (line->empty()) {
      lines.leave_out();
      continue;
    }
    row.fields.clear();
    row.line = lines.number();
    const bool is_good = lines.reads_row([&] {
      read(*line, row);
      if (width == 0) width = row.fields.size();
      check(row.fields.size() == width, lines.origin(), ":", row.line, ": the row has ", row.fields.size(),
            " fields, but the first row has ", width);
    });
    if (is_good) take(row);
  }
  check(width > 0, lines.origin(), ": there are ", lines.number(), " lines, but all are blank");
}

/// Adds a field, and counts fields as they are found: a row of separators takes more memory as
/// fields than as text.
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

/// Returns the delimiter of a file, from its first line. One with a space behind it may be a mark
/// of a sentence.
const Delimiter& detect_delimiter(std::string_view line) {
  for (const bool before_space : {false, true})
    for (const Delimiter& one : delimiters) {
      bool quoted = false;
      for (std::size_t i = 0; i < line.size(); ++i) {
        quoted ^= line[i] == '"';
        if (line[i] == one.byte && !quoted && (before_space || !line.substr(i + 1).starts_with(' ')))
          return one;
      }
    }
  return delimiters[0];
}

/// Parses the lines of a file; a quoted field may span several lines.
class CsvParser {
 public:
  CsvParser(TextLines& lines, char delimiter, ReadReport* report)
      : lines_(lines), report_(report), delimiter_(delimiter) {}

  /// Reads the row that begins with this line.
  void read(std::string_view line, TableRow& row) {
    text_ = line;
    at_ = 0;
    if (delimiter_ == 0) find_delimiter();
    row.delimiter = delimiter_;
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

 private:
  void find_delimiter() {
    const Delimiter& found = detect_delimiter(text_);
    delimiter_ = found.byte;
    if (report_ && delimiter_ != ',')
      report_->remarks.push_back(
          concat_text(lines_.origin(), ": its fields are separated by ", found.plural));
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
        field.append(text_.substr(at_)).append(lines_.line_end());
        const auto line = lines_.next();
        if (!line) fail(lines_.origin(), ":", first_line, ": a quoted field is never closed");
        text_ = *line;
        at_ = 0;
        continue;
      }
      field.append(text_.substr(at_, quote - at_));
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] == delimiter_) return;
      check(text_[at_] == '"', lines_.place(), ": expected a ",
            std::ranges::find(delimiters, delimiter_, &Delimiter::byte)->name,
            " after the closing quote, but found ", text_.substr(at_, 20));
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
  CsvParser parser(lines, delimiter, report);
  read_rows(lines, take, [&](std::string_view line, TableRow& row) { parser.read(line, row); });
}

void read_tsv(const TextInput& input, const TakeRow& take, const TextOptions& options, ReadReport* report) {
  TextLines lines(input, options, report);
  read_rows(lines, take, [&](std::string_view line, TableRow& row) {
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t tab = std::min(line.find('\t', begin), line.size());
      add_field(row, lines) = line.substr(begin, tab - begin);
      begin = tab + 1;
    }
  });
}

// --- tables

namespace {

using Json = nlohmann::ordered_json;

// --- csv and tsv

/// Returns a text that is a whole number, such as that of a column.
std::optional<std::size_t> whole_number(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return end == text.data() + text.size() && error == std::errc() ? std::optional(number) : std::nullopt;
}

/// The columns of csv and tsv: by their number, and by the names in the first row.
class ColumnIndex {
 public:
  ColumnIndex(const TableRow& first, std::string_view origin)
      : fields_(first.fields), place_(concat_text(origin, ":", first.line)) {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const auto [known, is_new] = places_.try_emplace(fields_[i], i);
      if (!is_new) known->second = several;
    }
  }
  /// Returns the index of a column. If there is none, throws, or returns nothing unless `required`.
  std::optional<std::size_t> find(const std::string& column, bool required) const {
    if (const auto number = whole_number(column)) {
      const bool is_there = *number >= 1 && *number <= fields_.size();
      check(is_there || !required, place_, ": there is no column ", column, "; the rows have ",
            fields_.size());
      return is_there ? std::optional(*number - 1) : std::nullopt;
    }
    const auto found = places_.find(column);
    if (found == places_.end() && required)
      fail(place_, ": there is no column \"", column, "\" among ", quoted_names(fields_));
    if (found == places_.end()) return std::nullopt;
    check(found->second != several, place_, ": the column \"", column,
          "\" occurs twice in the header: give its number");
    return found->second;
  }
  std::size_t operator[](const std::string& column) const { return *find(column, true); }

 private:
  static constexpr std::size_t several = std::string::npos;
  const std::vector<std::string> fields_;
  const std::string place_;
  std::unordered_map<std::string_view, std::size_t> places_;
};

void check_distinct(const auto& found, const std::vector<std::string>& columns, std::string_view origin) {
  std::map<std::remove_cvref_t<decltype(found[0])>, std::size_t> places;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [before, is_new] = places.try_emplace(found[i], i);
    check(is_new, origin, ": the columns \"", columns[before->second], "\" and \"", columns[i],
          "\" are one; name each once");
  }
}

/// The limits of the sample used to detect the layout: rows, and bytes of their cells.
constexpr std::size_t most_rows = 10'000, most_bytes = 1 << 24;

/// Picks the selected columns from the rows of csv and tsv.
class ColumnPicker {
 public:
  ColumnPicker(const TableOptions& options, const TakeCells& take, std::string_view origin,
               ReadReport* report)
      : options_(options), take_(take), origin_(origin), report_(report), header_(options.header) {
    if (const auto name = std::ranges::find_if(options.columns, is_column_name);
        name != options.columns.end()) {
      check(header_ != Header::absent, origin, ": the column \"", *name,
            "\" is given by name, but the file has no header; give its number");
      header_ = Header::present;
    }
    waits_ = header_ == Header::detected || options.choose;
  }

  void row(TableRow& row) {
    if (!waits_) return pick(row);
    for (const std::string& field : row.fields) waiting_bytes_ += field.size();
    waiting_.push_back(std::move(row));
    if (waiting_.size() > most_rows || waiting_bytes_ > most_bytes) look(false);
  }
  void finish() {
    if (waits_) look(true);
    check(has_rows_, origin_, ": there is only a header");
  }

 private:
  /// Chooses the columns from the first rows; `is_whole`: there are no others.
  void look(bool is_whole) {
    waits_ = false;
    if (header_ == Header::detected) detect();
    if (options_.choose) choose(is_whole);
    for (TableRow& row : waiting_) pick(row);
    waiting_ = {};
  }

  void detect() {
    const TableRow& first = waiting_.front();
    const ColumnIndex index(first, origin_);
    std::vector<std::size_t> chosen;
    for (const std::string& column : options_.columns) chosen.push_back(index[column]);
    const bool is_header = names_columns(waiting_, chosen);
    header_ = is_header ? Header::present : Header::absent;
    if (report_)
      report_->remarks.push_back(
          is_header ? concat_text(origin_, ": its first row, ", quoted_names(first.fields),
                                  ", is read as a header; data.header=false reads it as data")
                    : concat_text(origin_,
                                  ": its first row is read as data; data.header=true reads it as a header"));
  }

  void choose(bool is_whole) {
    const TableRow& first = waiting_.front();
    const bool has_header = header_ == Header::present;
    const std::span<const TableRow> rows = std::span(waiting_).subspan(has_header ? 1 : 0);
    check(!rows.empty(), origin_, ": there is only a header");
    TableSample sample{names_of(first, has_header), has_header, false, rows, is_whole, origin_, {}};
    const ColumnIndex index(first, origin_);
    sample.find = std::bind_front(&ColumnIndex::find, &index);
    indices_ = options_.choose(sample);
  }

  static std::vector<std::string> names_of(const TableRow& first, bool has_header) {
    std::vector<std::string> names = first.fields;
    for (std::size_t i = 0; !has_header && i < names.size(); ++i) names[i] = std::to_string(i + 1);
    return names;
  }

  void pick(TableRow& row) {
    const bool has_header = header_ == Header::present;
    if (first_.empty()) {
      begin(row, has_header);
      if (has_header) return;
    }
    has_rows_ = true;
    cells_.resize(indices_.size());
    for (std::size_t i = 0; i < indices_.size(); ++i) cells_[i] = row.fields[indices_[i]];
    take_({names_, first_, has_header, cells_, row.fields, row.delimiter, origin_, row.line});
  }

  void begin(const TableRow& first, bool has_header) {
    first_ = first.fields;
    if (!options_.choose) find_columns(first, has_header);
    const std::vector<std::string> names = names_of(first, has_header);
    for (const std::size_t index : indices_) names_.push_back(names[index]);
  }

  void find_columns(const TableRow& first, bool has_header) {
    std::vector<std::string> columns = options_.columns;
    for (std::size_t i = 0; has_header && i < options_.usual_names.size(); ++i)
      if (std::ranges::count(first_, options_.usual_names[i]) == 1) columns[i] = options_.usual_names[i];
    const ColumnIndex index(first, origin_);
    for (const std::string& column : columns) indices_.push_back(index[column]);
    if (options_.distinct) check_distinct(indices_, columns, origin_);
    for (std::size_t i = 0; columns.empty() && i < first_.size(); ++i) indices_.push_back(i);
  }

  const TableOptions& options_;
  const TakeCells& take_;
  std::string_view origin_;
  ReadReport* report_;
  Header header_;
  bool waits_;  // until it is known whether the first row names the columns, and which are read
  std::vector<TableRow> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::vector<std::size_t> indices_;
  std::vector<std::string> names_, first_, cells_;
  bool has_rows_ = false;
};

void rows_of_cells(const TextInput& input, const std::string& format, const TableOptions& options,
                   const TakeCells& take, ReadReport* report) {
  ColumnPicker picker(options, take, input.origin, report);
  const auto row = std::bind_front(&ColumnPicker::row, &picker);
  if (format == "tsv") {
    read_tsv(input, row, options.text, report);
  } else {
    const auto* const given = std::ranges::find(delimiters, options.delimiter, &Delimiter::name);
    check(options.delimiter.empty() || given != std::end(delimiters), "unknown delimiter \"",
          options.delimiter, "\": use one of ", quoted_names(table_delimiters()));
    read_csv(input, row, options.text, report, options.delimiter.empty() ? '\0' : given->byte);
  }
  picker.finish();
}

// --- jsonl

/// Returns the keys of an object; for a member that is an object, its keys after a dot.
std::vector<std::string> object_keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_object() || value.empty())
      keys.push_back(key);
    else
      for (const std::string& inner : object_keys(value)) keys.push_back(concat_text(key, '.', inner));
  }
  return keys;
}

/// The members of an object by their name; "a.b" is the member b of the member a, unless a member
/// has this name.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) { add(object, ""); }
  const Json* find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : found->second;
  }
  /// The value as text. `separator`: between the texts of a list, which are refused if it is "".
  std::string text(const std::string& name, const std::string& separator, const std::string& place) const;

 private:
  void add(const Json& object, const std::string& before) {
    for (const auto& [key, value] : object.items()) values_.try_emplace(before + key, &value);
    for (const auto& [key, value] : object.items())
      if (value.is_object()) add(value, before + key + '.');
  }
  const Json& object_;
  std::unordered_map<std::string, const Json*> values_;
};

/// Joins a list of texts.
std::string list_text(const Json& list, const std::string& separator, const std::string& place) {
  std::string text;
  for (const Json& one : list) {
    check(one.is_string() && one.get<std::string>().find(separator) == std::string::npos, place,
          ": a list holds ", one.dump(), "; expected texts without \"", separator, "\" in them");
    text += (&one == &list.front() ? "" : separator) + one.get<std::string>();
  }
  return text;
}

std::string Members::text(const std::string& name, const std::string& separator,
                          const std::string& place) const {
  const Json* const found = find(name);
  if (!found) fail(place, ": there is no \"", name, "\" among ", quoted_names(object_keys(object_)));
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array() && !separator.empty()) return list_text(*found, separator, place);
  check(found->is_number() || found->is_boolean(), place, ": \"", name,
        "\" must be a text, a number, true or false, not ", found->type_name());
  check(!found->is_number_float() || std::abs(found->get<double>()) < 0x1p53, place, ": the number \"", name,
        "\" has too many digits; write it as a text, in quotes");
  return found->dump();
}

/// Picks the selected members from the objects on the lines of jsonl.
class MemberPicker {
 public:
  MemberPicker(const TableOptions& options, const TakeCells& take, std::string_view origin)
      : options_(options), take_(take), origin_(origin), names_(options.columns) {
    if (options.distinct) check_distinct(options.columns, options.columns, origin);
    waits_ = options.choose != nullptr;
  }

  void take(Json object, std::string text, std::size_t number) {
    Line line{std::move(object), std::move(text), number};
    if (!std::exchange(is_begun_, true)) begin(line.object);
    if (!waits_) return pick(line);
    waiting_bytes_ += line.text.size();
    waiting_.push_back(std::move(line));
    if (waiting_.size() >= most_rows || waiting_bytes_ > most_bytes) choose(false);
  }

  /// Returns false if there was no line.
  bool finish() {
    if (waits_ && is_begun_) choose(true);
    return is_begun_;
  }

 private:
  struct Line {
    Json object;
    std::string text;
    std::size_t number;
  };

  void begin(const Json& object) {
    first_ = object_keys(object);
    for (std::size_t i = 0; i < first_.size(); ++i) places_.try_emplace(first_[i], i);
    if (!options_.choose && options_.columns.empty()) names_ = first_;
  }

  void choose(bool is_whole) {
    waits_ = false;
    std::vector<TableRow> rows;
    for (const Line& line : waiting_) {
      TableRow& row = rows.emplace_back();
      const Members members(line.object);
      for (const std::string& key : first_) {
        const Json* const found = members.find(key);
        const bool is_plain =
            found && !found->is_null() &&
            (!found->is_structured() || (found->is_array() && !options_.list_separator.empty()));
        row.fields.push_back(!is_plain ? "" : found->is_string() ? found->get<std::string>() : found->dump());
      }
    }
    TableSample sample{first_, true, true, rows, is_whole, origin_, {}};
    sample.find = [&](const std::string& name, bool required) {
      const auto found = places_.find(name);
      if (found == places_.end() && required)
        fail(origin_, ":", waiting_.front().number, ": there is no \"", name, "\" among ",
             quoted_names(first_));
      return found == places_.end() ? std::nullopt : std::optional(found->second);
    };
    names_.clear();
    for (const std::size_t index : options_.choose(sample)) names_.push_back(first_[index]);
    for (const Line& line : waiting_) pick(line);
    waiting_ = {};
  }

  void pick(const Line& line) {
    cells_.clear();
    const std::string place = concat_text(origin_, ":", line.number);
    const Members members(line.object);
    const auto is_none = [&](const std::string& name) {
      const Json* const found = members.find(name);
      return found ? found->is_null() : places_.contains(name);
    };
    for (const std::string& name : names_)
      cells_.push_back(
          options_.null_as_empty && is_none(name) ? "" : members.text(name, options_.list_separator, place));
    take_({names_, first_, true, cells_, {&line.text, 1}, '\n', origin_, line.number});
  }

  const TableOptions& options_;
  const TakeCells& take_;
  std::string_view origin_;
  bool waits_, is_begun_ = false;
  std::vector<Line> waiting_;  // until it is known which members are read
  std::size_t waiting_bytes_ = 0;
  std::vector<std::string> names_, first_, cells_;
  std::unordered_map<std::string, std::size_t> places_;  // of the names in `first_`
};

void rows_of_json_lines(const TextInput& input, const TableOptions& options, const TakeCells& take,
                        ReadReport* report) {
  TextLines lines(input, options.text, report);
  check(options.header != Header::present, input.origin,
        ": a header is for csv and tsv; each line of jsonl names its columns");
  MemberPicker picker(options, take, input.origin);
  const auto check_object = [&](const Json& object, std::size_t number) {
    check(object.is_object(), input.origin, ":", number, ": expected a JSON object, not ",
          object.type_name());
  };
  std::string array;  // of a file that is one array of objects
  while (const auto line = lines.next()) {
    if (line->empty()) {
      lines.leave_out();
    } else if (!array.empty() || (lines.number() == 1 && line->starts_with('['))) {
      array.append(*line).append("\n");
    } else {
      Json object;
      const bool is_good = lines.reads_row([&] {
        object = parse_written_json<Json>(std::string(*line), lines.place());
        check_object(object, lines.number());
      });
      if (is_good) picker.take(std::move(object), std::string(*line), lines.number());
    }
  }
  if (!array.empty())
    for (std::size_t number = 0; Json & object : parse_written_json<Json>(array, input.origin)) {
      check_object(object, ++number);
      std::string text = object.dump();
      picker.take(std::move(object), std::move(text), number);
    }
  check(picker.finish(), input.origin, ": there are ", lines.number(), " lines, but all are blank");
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

std::string remark_on_columns(const TableCells& row) {
  return concat_text(row.origin, ": the text is read from the column", row.names.size() == 1 ? " " : "s ",
                     quoted_names(row.names));
}

std::string TableCells::place() const {
  return concat_text(origin, ":", line);
}

bool is_column_name(const std::string& column) {
  return !whole_number(column);
}

std::string csv_row(std::span<const std::string> cells, char delimiter) {
  const std::string special = concat_text('"', '\n', '\r', delimiter);
  std::string row;
  for (const std::string& cell : cells) {
    if (&cell != &cells.front()) row += delimiter;
    if (cell.find_first_of(special) == std::string::npos) {
      row += cell;
      continue;
    }
    row += '"';
    for (const char byte : cell) row.append(byte == '"' ? 2 : 1, byte);
    row += '"';
  }
  return row;
}

std::string tsv_row(std::span<const std::string> cells) {
  std::string row;
  for (const std::string& cell : cells) {
    check(cell.find_first_of("\t\n\r") == std::string::npos,
          "a cell of tsv has a tab or a line end: ", unicode::shortened(unicode::printable(cell), 40));
    row += (&cell == &cells.front() ? "" : "\t") + cell;
  }
  return row;
}

std::vector<std::string> table_formats() {
  return {"csv", "tsv", "jsonl"};
}

std::vector<std::string> table_delimiters() {
  std::vector<std::string> names;
  for (const Delimiter& one : delimiters) names.emplace_back(one.name);
  return names;
}

std::string table_format(const std::filesystem::path& path) {
  const std::filesystem::path name = path.extension() == ".gz" ? path.stem() : path.filename();
  for (const std::string& format : table_formats())
    if (name.extension() == "." + format) return format;
  return name.extension() == ".json" ? "jsonl" : "";
}

void read_table_rows(const TextInput& input, const TableOptions& options, const TakeCells& take,
                     ReadReport* report) {
  const std::string name = options.format.empty() ? table_format(input.origin) : options.format;
  check(!name.empty(), input.origin,
        ": its name does not say how it is laid out; give data.format=", "csv, tsv or jsonl");
  check(std::ranges::count(table_formats(), name) > 0, "unknown format of tables, \"", name,
        "\": use one of ", quoted_names(table_formats()));
  check(options.delimiter.empty() || name == "csv", input.origin, ": a delimiter is for csv, not for ", name);
  if (name == "jsonl")
    rows_of_json_lines(input, options, take, report);
  else
    rows_of_cells(input, name, options, take, report);
}

// --- word vectors

namespace {

/// Returns a number of a vector; numbers too small for a float, such as 1e-46, become 0.
std::optional<float> vector_value(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);  // which from_chars refuses
  std::optional<float> value = parsed_number<float>(text);
  if (const std::optional<double> wide = value ? std::nullopt : parsed_number(text);
      wide && std::abs(*wide) < std::numeric_limits<float>::min())
    value = static_cast<float>(*wide);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

void check_width(const std::string& place, std::size_t found, std::int64_t width) {
  check(std::cmp_equal(found, width), place, "the vectors have ", found, " numbers, but model.width is ",
        width, ": set model.width=", found, " (a multiple of model.heads), or take other vectors");
}

/// Reads the numbers at the end of a line into `values` and returns the word before them.
std::string_view read_vector(const std::string& place, std::string_view line,
                             std::span<const std::string_view> fields, std::span<float> values) {
  check(fields.size() > values.size(), place, "a word and ", values.size(),
        " numbers were expected, but there are ", fields.size(), " fields");
  const std::size_t first = fields.size() - values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::optional<float> value = vector_value(fields[first + i]);
    if (!value)
      fail(place, "number ", i + 1, " is \"", unicode::shortened(fields[first + i], 40),
           "\"; finite numbers are expected");
    values[i] = *value;
  }
  const std::string_view last = fields[first - 1];
  return line.substr(0, static_cast<std::size_t>(last.data() + last.size() - line.data()));
}

}  // namespace

void read_word_vectors(const std::string& path, std::int64_t width,
                       const std::function<void(std::string_view, std::span<const float>)>& visit) {
  check(std::filesystem::is_regular_file(path), path,
        std::filesystem::exists(path) ? ": not a file" : ": there is no such file");
  TextLines lines(path,
                  {.bad_bytes = BadBytes::replace, .max_bytes = std::numeric_limits<std::uint64_t>::max()});
  std::size_t count = 0;
  std::optional<std::size_t> announced;
  std::vector<float> values(static_cast<std::size_t>(width));
  while (const auto line = lines.next()) {
    const std::string place = lines.place() + ": ";
    const std::vector<std::string_view> fields =
        split_at(line->substr(0, line->find_last_not_of(' ') + 1), " ");  // between single spaces
    if (lines.number() == 1 && fields.size() == 2 && whole_number(fields[0]) && whole_number(fields[1])) {
      announced = whole_number(fields[0]);
      check_width(place, *whole_number(fields[1]), width);
      continue;
    }
    if (lines.number() == 1 && !fields.empty()) check_width(place, fields.size() - 1, width);
    ++count;
    visit(read_vector(place, *line, fields, values), values);
  }
  check(count > 0, path, ": there are no vectors in it");
  check(!announced || *announced == count, path, ": its first line says ", announced.value_or(0),
        " vectors, but ", count, " follow");
}

}  // namespace heed
