#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "heed/data/csv.h"
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
  struct Line {
    std::string_view
        bytes;  ///< with its line end, until next() is called again; none of one that is too long
    bool too_long;
  };

  LineSplitter(Encoding encoding, std::uint64_t max_line_bytes)
      : leaves_out_mark_(encoding == Encoding::utf8), max_line_bytes_(max_line_bytes) {}

  /// The next piece, once next() has returned none.
  void give(std::string_view piece) { rest_ = piece; }
  /// There are no more: the last line may lack its line end.
  void finish() { at_end_ = true; }
  /// The next line that the pieces hold to its end.
  std::optional<Line> next() {
    if (is_given_) begun_.clear();
    too_long_ = too_long_ && !is_given_;
    is_given_ = false;
    while (!rest_.empty()) {
      const std::size_t newline = rest_.find('\n');
      const bool ends = newline != std::string_view::npos;
      const std::string_view part = rest_.substr(0, ends ? newline + 1 : newline);
      rest_.remove_prefix(part.size());
      too_long_ = too_long_ || part.size() > max_line_bytes_ - begun_.size();
      if (too_long_)
        begun_ = {};
      else if (!ends || !begun_.empty())
        begun_ += part;
      if (!ends) break;
      if (const auto line = without_mark(begun_.empty() && !too_long_ ? part : begun_)) return line;
    }
    if (at_end_ && (too_long_ || !begun_.empty())) return without_mark(begun_);
    return {};
  }

 private:
  std::optional<Line> without_mark(std::string_view line) {
    is_given_ = true;
    const bool marked = std::exchange(leaves_out_mark_, false) && line.starts_with("\xEF\xBB\xBF");
    if (marked) line.remove_prefix(3);
    if (marked && line.empty()) {  // a mark alone is no line
      begun_.clear();
      return {};
    }
    return Line{line, too_long_};
  }

  bool leaves_out_mark_;
  std::uint64_t max_line_bytes_;
  std::string_view rest_;  // of the piece
  std::string begun_;      // of the line under way
  bool too_long_ = false, is_given_ = false, at_end_ = false;
};

/// A line without "\n" or "\r\n".
inline std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// A text file, or bytes in memory that are read as one; plain or gzip.
struct TextInput {
  explicit TextInput(std::filesystem::path file) : origin(file.string()), path(std::move(file)) {}
  TextInput(std::string_view in_memory, std::string_view name) : origin(name), bytes(in_memory) {}

  std::string origin;  ///< in messages
  std::filesystem::path path = {};
  std::optional<std::string_view> bytes = {};  ///< none: they are in the file
};

/// The lines of a text, one after the other: what is wrong in one is said before the next is read, and nothing of
/// those before is kept. All readers of data stand on it.
class TextLines {
 public:
  enum class Ends { left_out, kept };  ///< of lines; kept, a line may have any length

  /// `report`, where there is one, must outlive this. Throws Error for what is too large or no regular file.
  TextLines(TextInput input, const TextOptions& options, ReadReport* report = nullptr,
            Ends ends = Ends::left_out);

  /// The next line as UTF-8, until the next call. Throws Error as read_lines does.
  std::optional<std::string_view> next();
  const std::string& origin() const { return input_.origin; }
  std::size_t number() const { return number_; }  ///< of the line, from 1
  std::string place() const;                      ///< "file:line"
  /// Notes that the line is left out because nothing stands in it.
  void leave_out() {
    if (report_ != nullptr) ++report_->blank;
  }

 private:
  std::optional<LineSplitter::Line> next_bytes();

  TextInput input_;
  TextOptions options_;
  ReadReport* report_;
  Ends ends_;
  LineSplitter splitter_;
  std::function<std::string_view()> pieces_;
  std::string text_;  // of the line
  std::size_t number_ = 0;
};

/// What read_csv and read_tsv do.
void rows_of_csv(TextLines lines, const std::function<void(TableRow& row)>& take);
void rows_of_tsv(TextLines lines, const std::function<void(TableRow& row)>& take);

/// Puts `to` where `from` stands, from left to right.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace heed
