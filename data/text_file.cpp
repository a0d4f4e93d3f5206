#include "heed/data/text_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/core/interrupt.h"
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

void check_size_of(const std::filesystem::path& path, const TextOptions& options) {
  std::error_code unknown;  // what has no size, the reader refuses
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) check_file_size(size, path.string(), options.max_bytes);
}

using Pieces = std::function<std::string_view()>;

/// The bytes of an input as they stand in the file.
Pieces packed_pieces(const TextInput& input) {
  if (input.bytes) return [bytes = *input.bytes]() mutable { return std::exchange(bytes, {}); };
  return [parts = std::make_shared<FileParts>(input.path)] { return parts->next(); };
}

/// The bytes of the text, piece by piece. Its size is looked at before the first is given.
Pieces pieces_of(const TextInput& input, const TextOptions& options) {
  Pieces packed = packed_pieces(input);
  const std::string_view first = packed();
  std::uint64_t size = first.size();
  if (!input.bytes) size = std::max<std::uint64_t>(size, std::filesystem::file_size(input.path));
  check_file_size(size, input.origin, options.max_bytes);
  Pieces all = [packed = std::move(packed), first, is_first = true]() mutable {
    return std::exchange(is_first, false) ? first : packed();
  };
  if (is_gzip(first)) {
    if (!unpacks_within(size, options.max_bytes))
      check_unpacked_size(size, packed_pieces(input), input.origin, options.max_bytes);
    return [reader = std::make_shared<GzipReader>(std::move(all), input.origin)] { return reader->next(); };
  }
  return [all = std::move(all), bytes = std::uint64_t{0}, origin = input.origin,
          most = options.max_bytes]() mutable {
    const std::string_view piece = all();
    bytes += piece.size();  // the file may have grown
    check_file_size(bytes, origin, most);
    return piece;
  };
}

TextList lines_of(TextLines lines) {
  TextList list;
  while (const auto line = lines.next()) list.push_back(*line);
  return list;
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

TextLines::TextLines(TextInput input, const TextOptions& options, ReadReport* report, Ends ends)
    : input_(std::move(input)),
      options_(options),
      report_(report),
      ends_(ends),
      splitter_(options.encoding,
                ends == Ends::kept ? std::numeric_limits<std::uint64_t>::max() : options.max_line_bytes),
      pieces_(pieces_of(input_, options)) {}

std::optional<LineSplitter::Line> TextLines::next_bytes() {
  while (pieces_) {
    if (const auto line = splitter_.next()) return line;
    check_stop();
    const std::string_view piece = pieces_();
    if (piece.empty()) {
      splitter_.finish();
      pieces_ = nullptr;
    } else {
      splitter_.give(piece);
    }
  }
  return splitter_.next();
}

std::optional<std::string_view> TextLines::next() {
  const std::optional<LineSplitter::Line> line = next_bytes();
  check(line || number_ > 0, input_.origin, ": the file is empty");
  if (!line) return {};
  ++number_;
  if (line->too_long) fail(place(), ": ", long_line_message(options_.max_line_bytes));
  std::int64_t replaced = 0;
  const std::string_view bytes = ends_ == Ends::kept ? line->bytes : without_line_end(line->bytes);
  const std::string error = decode_line(bytes, options_, text_, replaced);
  if (!error.empty()) fail(place(), ": ", error);
  if (report_ != nullptr) report_->replaced += replaced;
  return text_;
}

std::string TextLines::place() const {
  return concat_text(input_.origin, ":", number_);
}

TextList parse_lines(std::string_view bytes, std::string_view origin, const TextOptions& options,
                     ReadReport* report) {
  return lines_of({TextInput(bytes, origin), options, report});
}

std::string read_limited_file(const std::filesystem::path& path, const TextOptions& options) {
  check_size_of(path, options);
  return read_file(path);
}

TextList read_lines(const std::filesystem::path& path, const TextOptions& options, ReadReport* report) {
  return lines_of({TextInput(path), options, report});
}

void read_text_by_lines(const std::filesystem::path& path, const TextOptions& options,
                        const std::function<void(std::string_view line)>& take, ReadReport* report) {
  TextLines lines(TextInput(path), options, report, TextLines::Ends::kept);
  while (const auto line = lines.next()) take(*line);
}

ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TextOptions& options, ReadReport* report) {
  TextLines sources(TextInput(source), options, report), targets(TextInput(target), options, report);
  ParallelText text;
  for (;;) {
    const auto one = sources.next(), other = targets.next();
    if (!one && !other) return text;
    if (one && other && one->empty() && other->empty()) {
      sources.leave_out();
    } else if (one && other) {
      text.source.push_back(*one);
      text.target.push_back(*other);
    } else {  // the lines of the longer file are counted
      text = {};
      while (sources.next() || targets.next()) continue;
      fail("the two files do not belong together: ", source.string(), " has ", sources.number(), " lines, ",
           target.string(), " has ", targets.number());
    }
  }
}

}  // namespace heed
