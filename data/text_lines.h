#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "heed/data/text_file.h"

// What the readers of whole files and of streams have in common: lines from bytes that come in pieces, and
// characters from the bytes of a line.

namespace heed {

/// A line without its line end, as UTF-8 in `text`. Returns what is wrong with it, or "".
std::string decode_line(std::string_view line, const TextOptions& options, std::string& text,
                        std::int64_t& replaced);

/// "the line is longer than ..."
std::string long_line_message(std::uint64_t max_line_bytes);

/// Cuts bytes that come in pieces into lines, in linear time. It keeps the beginning of one line at most, and
/// no more than the limit of that. A byte-order mark in front is left out where the encoding is UTF-8.
class LineSplitter {
 public:
  LineSplitter(Encoding encoding, std::uint64_t max_line_bytes)
      : leaves_out_mark_(encoding == Encoding::utf8), max_line_bytes_(max_line_bytes) {}

  /// Calls visit(line, too_long) for every line that ends in `piece`, with its line end; one that is too long
  /// comes without its bytes.
  template <class Visit>
  void feed(std::string_view piece, const Visit& visit) {
    while (!piece.empty()) {
      const std::size_t newline = piece.find('\n');
      const bool ends = newline != std::string_view::npos;
      const std::string_view part = piece.substr(0, ends ? newline + 1 : newline);
      piece.remove_prefix(part.size());
      too_long_ = too_long_ || part.size() > max_line_bytes_ - begun_.size();
      if (too_long_) {
        begun_ = {};
        if (ends) emit({}, visit);
      } else if (ends && begun_.empty()) {
        emit(part, visit);
      } else {
        begun_ += part;
        if (ends) emit(begun_, visit);
      }
    }
  }

  /// The last line, if it lacks its line end.
  template <class Visit>
  void finish(const Visit& visit) {
    if (too_long_ || !begun_.empty()) emit(begun_, visit);
  }

 private:
  template <class Visit>
  void emit(std::string_view line, const Visit& visit) {
    const bool marked = leaves_out_mark_ && line.starts_with("\xEF\xBB\xBF");
    leaves_out_mark_ = false;
    if (marked) line.remove_prefix(3);
    if (!marked || !line.empty()) visit(line, too_long_);  // a mark alone is no line
    begun_.clear();
    too_long_ = false;
  }

  bool leaves_out_mark_;
  std::uint64_t max_line_bytes_;
  std::string begun_;  // of the line under way
  bool too_long_ = false;
};

/// A line without "\n" or "\r\n".
inline std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// Puts `to` where `from` stands, from left to right.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace heed
