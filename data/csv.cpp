#include "heed/data/csv.h"

#include "heed/core/error.h"
#include "heed/core/file.h"

namespace heed {
namespace {

/// Goes through the lines of a file; a quoted field may run over several of them.
class CsvParser {
 public:
  CsvParser(std::vector<std::string> lines, std::string_view origin)
      : lines_(std::move(lines)), origin_(origin) {}

  std::vector<CsvRow> rows() {
    std::vector<CsvRow> rows;
    while (line_ < lines_.size()) {
      rows.push_back(row());
      check(rows.back().fields.size() == rows.front().fields.size(), origin_, ":", rows.back().line,
            ": the row has ", rows.back().fields.size(), " fields, but the first row has ",
            rows.front().fields.size());
    }
    return rows;
  }

 private:
  CsvRow row() {
    CsvRow row;
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
          ": a quote stands inside a field that is not quoted: ", field.substr(0, 40));
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

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view bytes, std::string_view origin, Encoding encoding) {
  return CsvParser(parse_lines(bytes, origin, encoding), origin).rows();
}

std::vector<CsvRow> read_csv(const std::filesystem::path& path, Encoding encoding) {
  return parse_csv(read_file(path), path.string(), encoding);
}

}  // namespace heed
