#include "heed/apps/cli/evaluation_table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "heed/apps/tasks/labelled.h"
#include "heed/base/error.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"
#include "heed/training/progress.h"

namespace heed::programs {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

/// The first column to the left, all others to the right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], unicode::columns(row[i]));
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - unicode::columns(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

/// The name of a class or figure.
std::string cell(const std::string& name) {
  return unicode::shortened(unicode::printable(name), 40);
}

/// Numbers with a fixed number of places, counts as they are, and anything else as JSON.
std::string cell(const Json& value) {
  if (!value.is_number_float()) return value.dump();
  std::array<char, 64> digits;
  const PlainNumbers plain;
  std::snprintf(digits.data(), digits.size(), "%.4f", value.get<double>());
  return digits.data();
}

std::size_t width_of(const std::string& table) {
  return unicode::columns(std::string_view(table).substr(0, table.find('\n')));
}

std::string class_table(const Json& classes) {
  std::vector<Row> rows = {{"class", "precision", "recall", "f1", "support"}};
  for (const auto& [name, one] : classes.items())
    rows.push_back(
        {cell(name), cell(one["precision"]), cell(one["recall"]), cell(one["f1"]), cell(one["texts"])});
  return aligned(rows);
}

std::string confusion_matrix(const Json& confusion, const std::vector<std::string>& names) {
  std::vector<Row> rows = {{"expected \\ predicted"}};
  rows.front().insert(rows.front().end(), names.begin(), names.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    rows.push_back({names[i]});
    for (const Json& count : confusion[i]) rows.back().push_back(cell(count));
  }
  return aligned(rows);
}

std::string frequent_confusions(const Json& confusion, const std::vector<std::string>& names) {
  const std::vector<Confusion> pairs = confusions_in(confusion);
  if (pairs.empty()) return {};
  constexpr std::size_t most = 20;
  std::vector<Row> rows = {{"expected", "predicted", "texts"}};
  for (std::size_t i = 0; i < std::min(pairs.size(), most); ++i)
    rows.push_back({names[pairs[i].expected], names[pairs[i].predicted], std::to_string(pairs[i].count)});
  std::string text = aligned(rows);
  if (pairs.size() > most)
    text += concat_text("and ", pairs.size() - most, " rarer confusions; --json has the whole matrix\n");
  return text;
}

}  // namespace

std::string evaluation_table(const Json& found, int columns) {
  std::vector<Row> figures;
  for (const auto& [name, value] : found.items())
    if (name != "classes" && name != "confusion")
      figures.push_back({cell(metric_title(name)),
                         value.is_string() ? unicode::printable(value.get<std::string>()) : cell(value)});
  std::string text = aligned(figures);
  if (!found.contains("classes")) return text;
  text += '\n' + class_table(found["classes"]);
  if (!found.contains("confusion")) return text;
  std::vector<std::string> names;
  for (const auto& [name, one] : found["classes"].items()) names.push_back(cell(name));
  std::string confusions = confusion_matrix(found["confusion"], names);
  if (width_of(confusions) > static_cast<std::size_t>(columns))
    confusions = frequent_confusions(found["confusion"], names);
  if (!confusions.empty()) text += '\n' + confusions;
  return text;
}

}  // namespace heed::programs
