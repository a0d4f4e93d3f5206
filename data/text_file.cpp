#include "heed/data/text_file.h"

#include <array>
#include <cstdio>
#include <limits>
#include <system_error>
#include <utility>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/core/unicode.h"
#include "heed/data/gzip.h"
#include "heed/data/text_lines.h"

namespace heed {
namespace {

constexpr std::array<std::pair<Encoding, const char*>, 3> encodings = {
    {{Encoding::utf8, "utf-8"}, {Encoding::latin1, "latin-1"}, {Encoding::cp1252, "cp1252"}}};
constexpr std::array<std::pair<BadBytes, const char*>, 2> policies = {
    {{BadBytes::error, "error"}, {BadBytes::replace, "replace"}}};

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& [value, name] : table) names.emplace_back(name);
  return names;
}

/// The characters that Windows code page 1252 has for the bytes 0x80 to 0x9F; 0 where it has none.
constexpr std::array<char32_t, 32> cp1252_high = {
    0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017D, 0,      0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

std::string hex(char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return text;
}

std::string decode_utf8(std::string_view line, BadBytes policy, std::string& text, std::int64_t& replaced) {
  const std::size_t at = unicode::find_invalid(line);
  if (at == std::string_view::npos) {
    text = line;
    return "";
  }
  if (policy == BadBytes::error)
    return concat_text("byte ", at + 1, " of the line (", hex(line[at]),
                       ") is not UTF-8; if the file is in another encoding, name it (latin-1 or cp1252)");
  for (std::size_t i = at; i < line.size();) {
    const unicode::CodePoint c = unicode::decode(line, i);
    if (!c.valid) replaced += c.length;
    i += static_cast<std::size_t>(c.length);
  }
  text = unicode::replace_invalid(line);
  return "";
}

std::string decode_single_bytes(std::string_view line, const TextOptions& options, std::string& text,
                                std::int64_t& replaced) {
  text.clear();
  text.reserve(line.size());
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    char32_t value = byte;
    if (options.encoding == Encoding::cp1252 && byte >= 0x80 && byte < 0xA0)
      value = cp1252_high[byte - 0x80u];
    if (value == 0 && byte != 0) {
      if (options.bad_bytes == BadBytes::error)
        return concat_text("the byte ", hex(c), " stands for nothing in cp1252");
      value = 0xFFFD;
      ++replaced;
    }
    unicode::append(text, value);
  }
  return "";
}

/// Calls visit(line) for each line as bytes of the file, line end included.
template <class Visit>
void for_each_line(std::string_view bytes, std::string_view origin, const TextOptions& options,
                   std::uint64_t max_line_bytes, const Visit& visit) {
  check_file_size(bytes.size(), origin, options.max_bytes);
  LineSplitter splitter(options.encoding, max_line_bytes);
  std::size_t number = 0;
  const auto take = [&](std::string_view line, bool too_long) {
    ++number;
    if (too_long) fail(origin, ":", number, ": ", long_line_message(max_line_bytes));
    visit(line, number);
  };
  if (is_gzip(bytes)) {
    check_unpacked_size(bytes, origin, options.max_bytes);
    GzipReader reader([&bytes] { return std::exchange(bytes, {}); }, std::string(origin));
    for (std::string_view piece; !(piece = reader.next()).empty();) splitter.feed(piece, take);
  } else {
    splitter.feed(bytes, take);
  }
  splitter.finish(take);
  check(number > 0, origin, ": the file is empty");
}

void check_size_of(const std::filesystem::path& path, const TextOptions& options) {
  std::error_code unknown;  // what has no size, the reader refuses
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) check_file_size(size, path.string(), options.max_bytes);
}

/// The text of a line of a file.
std::string decoded(std::string_view line, std::string_view origin, std::size_t number,
                    const TextOptions& options, ReadReport* report) {
  std::string text;
  std::int64_t replaced = 0;
  const std::string error = decode_line(line, options, text, replaced);
  check(error.empty(), origin, ":", number, ": ", error);
  if (report != nullptr) report->replaced += replaced;
  return text;
}

}  // namespace

std::vector<std::string> encoding_names() {
  return names_of(encodings);
}

Encoding encoding_from_name(std::string_view name) {
  for (const auto& [value, known] : encodings)
    if (name == known) return value;
  fail("unknown text encoding \"", name, "\": use utf-8, latin-1 or cp1252");
}

std::vector<std::string> bad_bytes_names() {
  return names_of(policies);
}

BadBytes bad_bytes_from_name(std::string_view name) {
  for (const auto& [value, known] : policies)
    if (name == known) return value;
  fail("unknown rule for bytes that are no text, \"", name, "\": use error or replace");
}

std::string decode_line(std::string_view line, const TextOptions& options, std::string& text,
                        std::int64_t& replaced) {
  return options.encoding == Encoding::utf8 ? decode_utf8(line, options.bad_bytes, text, replaced)
                                            : decode_single_bytes(line, options, text, replaced);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string replaced;
  for (std::size_t at = 0, found = 0; at < text.size(); at = found + from.size()) {
    found = std::min(text.find(from, at), text.size());
    replaced.append(text, at, found - at);
    if (found < text.size()) replaced.append(to);
  }
  text = std::move(replaced);
}

std::string long_line_message(std::uint64_t max_line_bytes) {
  return concat_text("the line is longer than the ", max_line_bytes,
                     " bytes that data.max_line_bytes allows; is this a text with line ends?");
}

std::vector<std::string> parse_lines(std::string_view bytes, std::string_view origin,
                                     const TextOptions& options, ReadReport* report) {
  std::vector<std::string> lines;
  for_each_line(bytes, origin, options, options.max_line_bytes,
                [&](std::string_view line, std::size_t number) {
                  lines.push_back(decoded(without_line_end(line), origin, number, options, report));
                });
  return lines;
}

std::string read_limited_file(const std::filesystem::path& path, const TextOptions& options) {
  check_size_of(path, options);
  return read_file(path);
}

std::vector<std::string> read_lines(const std::filesystem::path& path, const TextOptions& options,
                                    ReadReport* report) {
  return parse_lines(read_limited_file(path, options), path.string(), options, report);
}

void read_text_by_lines(const std::filesystem::path& path, const TextOptions& options,
                        const std::function<void(std::string_view line)>& take, ReadReport* report) {
  constexpr std::uint64_t any_length = std::numeric_limits<std::uint64_t>::max();
  const std::string origin = path.string();
  std::size_t number = 0;
  const auto visit = [&](std::string_view line, bool) {
    ++number;
    take(decoded(line, origin, number, options, report));
  };
  LineSplitter splitter(options.encoding, any_length);
  std::uint64_t bytes = 0;
  std::string packed;  // a gzip file, whole
  check_size_of(path, options);
  read_file_in_parts(path, [&](std::string_view part) {
    bytes += part.size();
    check_file_size(bytes, origin, options.max_bytes);
    if (!packed.empty() || (bytes == part.size() && is_gzip(part)))
      packed += part;
    else
      splitter.feed(part, visit);
  });
  if (!packed.empty())
    return for_each_line(packed, origin, options, any_length,
                         [&](std::string_view line, std::size_t) { visit(line, false); });
  splitter.finish(visit);
  check(number > 0, origin, ": the file is empty");
}

ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TextOptions& options, ReadReport* report) {
  ParallelText text{read_lines(source, options, report), read_lines(target, options, report)};
  check(text.source.size() == text.target.size(), "the two files do not belong together: ", source.string(),
        " has ", text.source.size(), " lines, ", target.string(), " has ", text.target.size());
  return text;
}

}  // namespace heed
