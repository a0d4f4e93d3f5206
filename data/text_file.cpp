#include "heed/data/text_file.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/core/unicode.h"
#include "heed/data/gzip.h"

namespace heed {
namespace {

/// The characters that Windows code page 1252 has for the bytes 0x80 to 0x9F; 0 where it has none.
constexpr std::array<char32_t, 32> cp1252_high = {
    0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017D, 0,      0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

std::string hex(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

void check_utf8(std::string_view line, std::string_view origin, std::size_t number) {
  const std::size_t at = unicode::find_invalid(line);
  if (at == std::string_view::npos) return;
  fail(origin, ":", number, ": byte ", at + 1, " of the line (", hex(static_cast<unsigned char>(line[at])),
       ") is not UTF-8; if the file is in another encoding, name it (latin-1 or cp1252)");
}

std::string from_single_bytes(std::string_view line, Encoding encoding, std::string_view origin,
                              std::size_t number) {
  std::string text;
  text.reserve(line.size());
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    char32_t value = byte;
    if (encoding == Encoding::cp1252 && byte >= 0x80 && byte < 0xA0) value = cp1252_high[byte - 0x80u];
    check(value != 0 || byte == 0, origin, ":", number, ": the byte ", hex(byte),
          " stands for nothing in cp1252");
    unicode::append(text, value);
  }
  return text;
}

std::string convert(std::string_view line, Encoding encoding, std::string_view origin, std::size_t number) {
  if (encoding != Encoding::utf8) return from_single_bytes(line, encoding, origin, number);
  check_utf8(line, origin, number);
  return std::string(line);
}

/// Calls visit(line) for each line, line end included, as bytes of the file.
template <class Visit>
void for_each_line(std::string_view bytes, std::string_view origin, Encoding encoding, Visit&& visit) {
  std::string unpacked;
  if (is_gzip(bytes)) bytes = unpacked = gunzip(bytes, origin);
  if (encoding == Encoding::utf8 && bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  check(!bytes.empty(), origin, ": the file is empty");
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view line = bytes.substr(0, end == std::string_view::npos ? end : end + 1);
    visit(line);
    bytes.remove_prefix(line.size());
  }
}

}  // namespace

Encoding encoding_from_name(std::string_view name) {
  if (name == "utf-8") return Encoding::utf8;
  if (name == "latin-1") return Encoding::latin1;
  if (name == "cp1252") return Encoding::cp1252;
  fail("unknown text encoding \"", name, "\": use utf-8, latin-1 or cp1252");
}

std::vector<std::string> parse_lines(std::string_view bytes, std::string_view origin, Encoding encoding) {
  std::vector<std::string> lines;
  for_each_line(bytes, origin, encoding, [&](std::string_view line) {
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(convert(line, encoding, origin, lines.size() + 1));
  });
  return lines;
}

std::string parse_text(std::string_view bytes, std::string_view origin, Encoding encoding) {
  std::string text;
  std::size_t number = 0;
  for_each_line(bytes, origin, encoding,
                [&](std::string_view line) { text += convert(line, encoding, origin, ++number); });
  return text;
}

std::vector<std::string> read_lines(const std::filesystem::path& path, Encoding encoding) {
  return parse_lines(read_file(path), path.string(), encoding);
}

std::string read_text(const std::filesystem::path& path, Encoding encoding) {
  return parse_text(read_file(path), path.string(), encoding);
}

}  // namespace heed
