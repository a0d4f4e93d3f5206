#include "heed/data/csv.h"

#include <algorithm>

#include "heed/core/error.h"
#include "heed/core/unicode.h"

namespace heed {
namespace {

/// The last row must be as wide as the first.
void check_width(const std::vector<TableRow>& rows, std::string_view origin) {
  check(rows.back().fields.size() == rows.front().fields.size(), origin, ":", rows.back().line,
        ": the row has ", rows.back().fields.size(), " fields, but the first row has ",
        rows.front().fields.size());
}

/// Goes through the lines of a file; a quoted field may run over several of them.
class CsvParser {
 public:
  CsvParser(std::vector<std::string> lines, std::string_view origin)
      : lines_(std::move(lines)), origin_(origin) {}

  std::vector<TableRow> rows() {
    std::vector<TableRow> rows;
    while (line_ < lines_.size()) {
      rows.push_back(row());
      check_width(rows, origin_);
    }
    return rows;
  }

 private:
  TableRow row() {
    TableRow row;
    row.line = line_ + 1;
    at_ = 0;
    while (true) {
      row.fields.push_back(at_ < text().size() && text()[at_] == '"' ? quoted_field() : plain_field());
      if (at_ == text().size()) break;
      ++at_;  // the comma
    }
    ++line_;
    return row;
  }

  std::string plain_field() {
    const std::size_t end = std::min(text().find(',', at_), text().size());
    const std::string field = text().substr(at_, end - at_);
    check(field.find('"') == std::string::npos, origin_, ":", line_ + 1,
          ": a quote stands inside a field that is not quoted: ", unicode::shortened(field, 40));
    at_ = end;
    return field;
  }

  std::string quoted_field() {
    const std::size_t first_line = line_ + 1;
    std::string field;
    for (++at_;;) {
      const std::size_t quote = text().find('"', at_);
      if (quote == std::string::npos) {
        field.append(text(), at_).push_back('\n');
        check(++line_ < lines_.size(), origin_, ":", first_line, ": a quoted field is never closed");
        at_ = 0;
        continue;
      }
      field.append(text(), at_, quote - at_);
      at_ = quote + 1;
      if (at_ == text().size() || text()[at_] == ',') return field;
      check(text()[at_] == '"', origin_, ":", line_ + 1,
            ": expected a comma behind the closing quote, but found ", text().substr(at_, 20));
      field.push_back('"');
      ++at_;
    }
  }

  const std::string& text() const { return lines_[line_]; }

  std::vector<std::string> lines_;
  std::string_view origin_;
  std::size_t line_ = 0, at_ = 0;
};

std::vector<std::string> split_at_tabs(std::string_view line) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0;;) {
    const std::size_t tab = std::min(line.find('\t', begin), line.size());
    fields.emplace_back(line.substr(begin, tab - begin));
    if (tab == line.size()) return fields;
    begin = tab + 1;
  }
}

}  // namespace

std::vector<TableRow> parse_csv(std::string_view bytes, std::string_view origin, const TextOptions& options,
                                ReadReport* report) {
  return CsvParser(parse_lines(bytes, origin, options, report), origin).rows();
}

std::vector<TableRow> read_csv(const std::filesystem::path& path, const TextOptions& options,
                               ReadReport* report) {
  return parse_csv(read_limited_file(path, options), path.string(), options, report);
}

std::vector<TableRow> parse_tsv(std::string_view bytes, std::string_view origin, const TextOptions& options,
                                ReadReport* report) {
  std::vector<TableRow> rows;
  for (const std::string& line : parse_lines(bytes, origin, options, report)) {
    rows.push_back({split_at_tabs(line), rows.size() + 1});
    check_width(rows, origin);
  }
  return rows;
}

std::vector<TableRow> read_tsv(const std::filesystem::path& path, const TextOptions& options,
                               ReadReport* report) {
  return parse_tsv(read_limited_file(path, options), path.string(), options, report);
}

}  // namespace heed
