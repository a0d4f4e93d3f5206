#include "heed/data/labelled_csv.h"

#include "heed/core/error.h"
#include "heed/data/csv.h"

namespace heed {
namespace {

std::vector<std::int64_t> text_columns(const CsvColumns& columns, std::int64_t count) {
  if (!columns.texts.empty()) return columns.texts;
  std::vector<std::int64_t> others;
  for (std::int64_t column = 1; column <= count; ++column)
    if (column != columns.label) others.push_back(column);
  return others;
}

}  // namespace

LabelledText read_labelled_csv(const std::filesystem::path& path, const CsvColumns& columns,
                               Encoding encoding) {
  const std::vector<CsvRow> rows = read_csv(path, encoding);
  const auto count = static_cast<std::int64_t>(rows.front().fields.size());
  const std::vector<std::int64_t> texts = text_columns(columns, count);
  const auto check_column = [&](std::int64_t column) {
    check(column >= 1 && column <= count, path.string(), ": there is no column ", column, "; the rows have ",
          count);
  };
  check_column(columns.label);
  for (const std::int64_t column : texts) check_column(column);
  check(!texts.empty(), path.string(), ": the rows have a label, but no text");

  LabelledText text;
  for (std::size_t i = columns.header ? 1 : 0; i < rows.size(); ++i) {
    const auto field = [&](std::int64_t column) {
      return rows[i].fields[static_cast<std::size_t>(column - 1)];
    };
    const std::string place = concat_text(path.string(), ":", rows[i].line);
    check(!field(columns.label).empty(), place, ": the label in column ", columns.label, " is empty");
    std::string joined = field(texts.front());
    for (std::size_t t = 1; t < texts.size(); ++t) joined.append(" ").append(field(texts[t]));
    text.add(std::move(joined), field(columns.label), place);
  }
  check(text.size() > 0, path.string(), ": there is nothing but a header");
  return text;
}

}  // namespace heed
