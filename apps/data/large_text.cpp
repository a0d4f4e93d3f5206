#include "heed/apps/data/large_text.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <system_error>
#include <utility>

#include "heed/apps/data/text_file.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/unicode.h"
#include "heed/core/random.h"

namespace heed {
namespace {

constexpr std::size_t piece_bytes = std::size_t{16} << 20;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/// Returns where a piece can end in this line: before its line break if that follows a word; 0:
/// nowhere.
std::size_t cut_in(std::string_view line) {
  if (!line.ends_with('\n')) return 0;
  const std::size_t at = without_line_end(line).size();
  return at > 0 && !is_space(line[at - 1]) ? at : 0;
}

/// Returns where a piece without such a place ends: before the last space that follows a word,
/// otherwise between two characters.
std::size_t forced_cut(std::string_view text) {
  for (std::size_t at = piece_bytes; at > piece_bytes / 2; --at)
    if (is_space(text[at]) && !is_space(text[at - 1])) return at;
  std::size_t at = piece_bytes;
  while ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
  return at;
}

}  // namespace

void LargeText::add(std::string_view text, bool begins) {
  pieces_.push_back({spool_.size(), static_cast<std::int64_t>(text.size()), begins});
  spool_.add(text);
  characters_ += std::count_if(text.begin(), text.end(),
                               [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
}

TextPiece LargeText::operator[](std::size_t piece) const {
  const Piece& one = pieces_.at(piece);
  return {spool_.read(one.begin, one.bytes), one.begins};
}

void read_large_text(const std::filesystem::path& path, LargeText& text, const TextOptions& options,
                     ReadReport* report) {
  std::string piece;
  std::size_t cut = 0;  // the last place where `piece` can end; 0: none
  bool begins = true;
  read_text_by_lines(
      path, options,
      [&](std::string_view line) {
        if (const std::size_t at = cut_in(line); at > 0) cut = piece.size() + at;
        piece += line;
        std::size_t done = 0;
        while (piece.size() - done > piece_bytes) {
          const std::string_view rest = std::string_view(piece).substr(done);
          const bool is_near = cut > done && cut - done <= 2 * piece_bytes;
          const std::size_t end = is_near ? cut - done : forced_cut(rest);
          text.add(rest.substr(0, end), std::exchange(begins, false));
          done += end;
        }
        piece.erase(0, done);
        cut = cut > done ? cut - done : 0;
      },
      report);
  text.add(piece, begins);
}

std::pair<LargeText, LargeText> split_large_text(const LargeText& text, std::int64_t characters,
                                                 std::int64_t memory_bytes) {
  std::pair<LargeText, LargeText> parts{LargeText(memory_bytes), LargeText(memory_bytes)};
  for (std::size_t i = 0; i < text.size(); ++i) {
    const TextPiece piece = text[i];
    std::size_t at = 0;
    const std::string_view whole = piece.text;
    for (; at < whole.size() && characters > 0; --characters)
      at += static_cast<unsigned char>(whole[at]) < 0x80
                ? 1
                : static_cast<std::size_t>(unicode::decode(whole, at).length);
    if (at > 0) parts.first.add(whole.substr(0, at), piece.begins);
    if (at < whole.size()) parts.second.add(whole.substr(at), piece.begins || parts.second.empty());
  }
  return parts;
}

}  // namespace heed
