#include "heed/tasks/class_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "heed/data/idx.h"
#include "heed/tasks/capture_page.h"
#include "heed/training/chart.h"

namespace heed {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_in_matrix = 40;  // classes; of more the pairs that are confused most are listed
constexpr std::size_t most_bytes = 600;     // of a text

constexpr std::string_view class_page_style = R"page(
.confusion td { text-align: center; padding: 0.3em 0.5em; min-width: 2.6em; background: rgb(var(--accent) / var(--w, 0)); } .confusion th { text-align: center; padding: 0.3em 0.5em; }
.confusion td:first-child { background: none; text-align: left; } .confusion .right { font-weight: 600; }
.mistakes { padding: 0; list-style: none; } .mistakes li { padding: 0.55rem 0; border-bottom: 1px solid var(--line-soft); overflow-wrap: anywhere; }
.mistakes .labels { font-size: 0.85rem; color: var(--muted); } .mistakes b { color: var(--ink); } .image { width: 5rem; height: auto; image-rendering: pixelated; border: 1px solid var(--line-soft); display: block; margin: 0.2rem 0; }
)page";

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

void add_little_endian(std::string& bytes, std::size_t value, int count) {
  for (int i = 0; i < count; ++i, value >>= 8) bytes += static_cast<char>(value & 0xFF);
}

/// A grey image as a BMP file: header, a palette of 256 greys, the rows from below, each of a multiple of four bytes.
std::string bitmap(const Images& image) {
  const auto rows = static_cast<std::size_t>(image.rows), columns = static_cast<std::size_t>(image.columns);
  const std::size_t row_bytes = (columns + 3) / 4 * 4, start = 14 + 40 + 256 * 4;
  std::string file = "BM";
  for (const std::size_t value :
       {start + rows * row_bytes, std::size_t{0}, start, std::size_t{40}, columns, rows})
    add_little_endian(file, value, 4);
  add_little_endian(file, 1, 2);  // planes
  add_little_endian(file, 8, 2);  // bits of a pixel
  for (const std::size_t value : {std::size_t{0}, rows * row_bytes, std::size_t{2835}, std::size_t{2835},
                                  std::size_t{256}, std::size_t{0}})
    add_little_endian(file, value, 4);
  for (std::size_t grey = 0; grey < 256; ++grey) add_little_endian(file, grey * 0x010101, 4);
  for (std::size_t row = rows; row-- > 0;) {
    for (std::size_t column = 0; column < columns; ++column)
      file += static_cast<char>(image.pixels[0][row * columns + column]);
    file.append(row_bytes - columns, '\0');
  }
  return file;
}

/// The image of a line, where it is one.
std::optional<Images> image_in(std::string_view line) {
  if (line.empty() || line.find_first_not_of("0123456789 ") != line.npos) return std::nullopt;
  try {
    return image_of_line(line);
  } catch (const Error&) {
    return std::nullopt;  // numbers that are a text
  }
}

std::string matrix_html(const std::vector<std::string>& names, const Json& confusion) {
  std::string table =
      "<p class=\"muted\">A row for each class that was expected, a column for each that was predicted"
      "; the shade is the share of its row.</p>\n<div class=\"wide\"><table "
      "class=\"confusion\"><tr><th></th>";
  std::size_t letters = 0;
  for (const std::string& name : names) letters += name.size();
  const bool numbered = letters > 60;
  for (std::size_t i = 0; i < names.size(); ++i)
    table += concat_text("<th title=\"", html_text(names[i]), "\">",
                         numbered ? std::to_string(i + 1) : html_text(names[i]), "</th>");
  table += "</tr>\n";
  for (std::size_t i = 0; i < names.size(); ++i) {
    double all = 0;
    for (const Json& count : confusion[i]) all += count.get<double>();
    table += concat_text("<tr><td>", numbered ? concat_text(i + 1, ' ') : std::string(), html_text(names[i]),
                         "</td>");
    for (std::size_t j = 0; j < names.size(); ++j) {
      const auto count = confusion[i][j].get<std::int64_t>();
      const double share = all > 0 ? static_cast<double>(count) / all : 0;
      table += concat_text("<td", i == j ? " class=\"right\"" : "",
                           " style=\"--w:", short_number(0.75 * share), "\" title=\"", html_text(names[i]),
                           " taken for ", html_text(names[j]), ": ", percent(share), "\">", count, "</td>");
    }
    table += "</tr>\n";
  }
  return table + "</table></div>\n";
}

/// The pairs of classes that are taken for each other most often.
std::string pairs_html(const std::vector<std::string>& names, const Json& confusion) {
  struct Pair {
    std::int64_t count;
    std::size_t expected, predicted;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t j = 0; j < names.size(); ++j)
      if (const auto count = confusion[i][j].get<std::int64_t>(); i != j && count > 0)
        pairs.push_back(Pair{count, i, j});
  std::ranges::stable_sort(pairs, std::ranges::greater(), &Pair::count);
  std::vector<std::vector<std::string>> rows = {{"expected", "predicted", "texts"}};
  for (std::size_t i = 0; i < std::min<std::size_t>(pairs.size(), 20); ++i)
    rows.push_back({names[pairs[i].expected], names[pairs[i].predicted], std::to_string(pairs[i].count)});
  return concat_text("<p class=\"muted\">", names.size(), " classes are too many for a matrix; the ",
                     rows.size() - 1, " pairs that are confused most:</p>\n", table_html(rows));
}

}  // namespace

std::string_view class_style() {
  return class_page_style;
}

std::string line_html(std::string_view line) {
  if (const std::optional<Images> image = image_in(line))
    return concat_text("<img class=\"image\" alt=\"image of ", image->rows, " x ", image->columns,
                       "\" src=\"data:image/bmp;base64,", base64(bitmap(*image)), "\">");
  const std::string text(unicode::beginning(line, most_bytes));
  if (const std::size_t tab = text.find('\t'); tab != text.npos)
    return concat_text(html_text(text.substr(0, tab)), " <span class=\"muted\">|</span> ",
                       html_text(text.substr(tab + 1)), text.size() < line.size() ? " …" : "");
  return concat_text(html_text(text), text.size() < line.size()
                                          ? concat_text(" … <small>(", line.size(), " bytes)</small>")
                                          : "");
}

std::string classes_html(const Measurement& measurement) {
  const Json json = Json::parse(measurement.json);
  if (!json.contains("classes")) return "";
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> rows = {{"class", "texts", "precision", "recall", "F1"}};
  for (const auto& [name, one] : json["classes"].items()) {
    names.push_back(name);
    rows.push_back({name, std::to_string(one["texts"].get<std::int64_t>()),
                    percent(one["precision"].get<double>()), percent(one["recall"].get<double>()),
                    percent(one["f1"].get<double>())});
  }
  std::string html = "<h3>Classes</h3>\n" + table_html(rows);
  if (!json.contains("confusion")) return html;
  return html + "<h3>Confusion</h3>\n" +
         (names.size() > most_in_matrix ? pairs_html(names, json["confusion"])
                                        : matrix_html(names, json["confusion"]));
}

std::string mistakes_html(const Measurement& measurement, std::size_t most) {
  const std::size_t shown = std::min(most, measurement.mistakes.size());
  std::string list =
      concat_text("<h3>Mistakes <small>", shown < measurement.mistakes.size() ? "the most confident of " : "",
                  measurement.mistakes.size(), " in ", measurement.count, "</small></h3>\n");
  if (shown == 0) return list;
  list += "<ol class=\"mistakes\">\n";
  for (std::size_t i = 0; i < shown; ++i) {
    const Mistake& one = measurement.mistakes[i];
    list += concat_text("<li><div class=\"labels\"><b>", html_text(one.predicted), "</b> ",
                        percent(one.probability), ", expected <b>", html_text(one.expected), "</b></div>",
                        line_html(one.text), "</li>\n");
  }
  return list + "</ol>\n";
}

}  // namespace heed
