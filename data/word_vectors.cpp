#include "heed/data/word_vectors.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <vector>

#include "heed/base/error.h"
#include "heed/base/unicode.h"
#include "heed/data/text_file.h"

namespace heed {
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
