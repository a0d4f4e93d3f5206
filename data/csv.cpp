#include "heed/data/csv.h"

#include <algorithm>

#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "heed/data/text_lines.h"

namespace heed {
namespace {

constexpr std::size_t most_fields = 65'536;

/// What the rows of a file have in common.
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

/// Checked as they are found: a row of separators takes more room as fields than as text.
std::string& add_field(TableRow& row, const TextLines& lines) {
  check(row.fields.size() < most_fields, lines.place(), ": the row has more than ", most_fields,
        " fields; is this a table of texts?");
  return row.fields.emplace_back();
}

/// Goes through the lines of a file; a quoted field may run over several of them.
class CsvParser {
 public:
  explicit CsvParser(TextLines& lines) : lines_(lines) {}

  void rows(const TakeRow& take) {
    RowChecks checks;
    TableRow row;
    while (next_line()) {
      if (text_.empty()) {
        lines_.leave_out();
        continue;
      }
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
      ++at_;  // the comma
    }
  }

  void read_plain(std::string& field) {
    const std::size_t end = std::min(text_.find(',', at_), text_.size());
    field = text_.substr(at_, end - at_);
    check(field.find('"') == std::string::npos, lines_.place(),
          ": a quote stands inside a field that is not quoted: ", unicode::shortened(field, 40));
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
      if (at_ == text_.size() || text_[at_] == ',') return;
      check(text_[at_] == '"', lines_.place(), ": expected a comma behind the closing quote, but found ",
            text_.substr(at_, 20));
      field.push_back('"');
      ++at_;
    }
  }

  TextLines& lines_;
  std::string_view text_;  // of the line
  std::size_t at_ = 0;
};

}  // namespace

void rows_of_csv(TextLines lines, const TakeRow& take) {
  CsvParser(lines).rows(take);
}

void rows_of_tsv(TextLines lines, const TakeRow& take) {
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

void parse_csv(std::string_view bytes, std::string_view origin, const TakeRow& take,
               const TextOptions& options, ReadReport* report) {
  rows_of_csv({TextInput(bytes, origin), options, report}, take);
}

void read_csv(const std::filesystem::path& path, const TakeRow& take, const TextOptions& options,
              ReadReport* report) {
  rows_of_csv({TextInput(path), options, report}, take);
}

void parse_tsv(std::string_view bytes, std::string_view origin, const TakeRow& take,
               const TextOptions& options, ReadReport* report) {
  rows_of_tsv({TextInput(bytes, origin), options, report}, take);
}

void read_tsv(const std::filesystem::path& path, const TakeRow& take, const TextOptions& options,
              ReadReport* report) {
  rows_of_tsv({TextInput(path), options, report}, take);
}

}  // namespace heed
