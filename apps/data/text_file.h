#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "heed/base/error.h"

#include "heed/text/text_list.h"

namespace heed {

/// The origin of each text in a list, for messages. Takes 8 bytes per text.
class TextPlaces {
 public:
  /// Adds the place "file:line"; line 0: the file as a whole. If the origin ends in a space, the
  /// number follows it directly: "pair 3".
  void add(std::string_view origin, std::size_t line = 0);
  std::size_t size() const { return lines_.size(); }
  std::string operator[](std::size_t index) const;
  TextPlaces picked(std::span<const std::size_t> indices) const;

 private:
  struct Run {
    std::size_t first;  // index of the first text of this origin
    std::shared_ptr<const std::string> origin;
  };
  const Run& find_run(std::size_t index) const;
  void add_run(const std::shared_ptr<const std::string>& origin);

  std::deque<std::size_t> lines_;
  std::vector<Run> runs_;
};

/// The character encoding of a text file, which is never guessed.
enum class Encoding { utf8, latin1, cp1252 };

/// Invalid bytes are an Error, or replaced by one U+FFFD for each ill-formed sequence of UTF-8 (see
/// unicode::CodePoint) or undefined byte of cp1252.
enum class BadBytes { error, replace };
/// A row of a table that cannot be read is an Error, or left out and counted.
enum class BadRows { error, drop };

/// The options of all text readers.
struct TextOptions {
  Encoding encoding = Encoding::utf8;
  BadBytes bad_bytes = BadBytes::error;
  BadRows bad_rows = BadRows::error;
  /// The largest size of a file, unpacked.
  std::uint64_t max_bytes = std::uint64_t{4} << 30;
  /// The longest line, line end included, when a text is read by lines.
  std::uint64_t max_line_bytes = std::uint64_t{64} << 20;
};

/// The findings of a reader that its caller should report.
struct ReadReport {
  std::int64_t replaced = 0;              ///< bytes replaced by U+FFFD
  std::int64_t blank = 0;                 ///< blank lines left out, in tables and in parallel texts
  std::int64_t missing = 0;               ///< rows left out because they lack a label or a text
  std::int64_t bad_rows = 0;              ///< rows left out because they cannot be read
  std::string first_bad_row = {};         ///< why
  std::vector<std::string> remarks = {};  ///< what was detected about a file
};

/// The input of a reader: a text file, or named bytes in memory; plain or gzip, by the first bytes.
struct TextInput {
  template <class Path>
  requires std::is_convertible_v<Path, std::filesystem::path> TextInput(const Path& file) : path(file) {
    origin = path.string();
  }
  TextInput(std::string_view in_memory, std::string_view name) : origin(name), bytes(in_memory) {}

  std::string origin;  ///< in messages
  std::filesystem::path path = {};
  std::optional<std::string_view> bytes = {};  ///< unset: read from the file
};

/// Reads the lines of a text as UTF-8, without line ends: "\n" or "\r\n", which the last line may lack. A
/// UTF-8 byte-order mark at the start is left out. Throws Error with origin and line number for invalid
/// bytes, lines that end in "\r" alone, a path that is not a regular file, an empty file, a damaged gzip
/// file, and sizes beyond the options, before allocating memory.
TextList read_lines(const TextInput& input, const TextOptions& options = {}, ReadReport* report = nullptr);

/// Reads a file as UTF-8, line by line, with line ends unchanged; a line may have any length. Throws as
/// read_lines does.
void read_text_by_lines(const std::filesystem::path& path, const TextOptions& options,
                        const std::function<void(std::string_view line)>& take, ReadReport* report = nullptr);

/// Returns the bytes of a file. Throws Error if it is no regular file, or larger than max_bytes.
std::string read_limited_file(const std::filesystem::path& path, const TextOptions& options);

/// Sentences and their translations: line i of one corresponds to line i of the other.
struct ParallelText {
  TextList source, target;
  std::size_t size() const { return source.size(); }
};

/// Data in three disjoint parts: for training, for measuring progress, and for a test.
template <class Data>
struct DataParts {
  Data train, valid, test;
};

/// Reads two files of lines (see read_lines) side by side. Pairs with an empty line are counted and
/// left out. Throws Error with both counts if they differ.
ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TextOptions& options = {}, ReadReport* report = nullptr);

/// Cuts bytes that arrive in pieces into lines, in linear time. Keeps at most the beginning of one line, up
/// to the limit. In UTF-8, a byte-order mark at the start is left out.
class LineSplitter {
 public:
  struct Line {
    /// With its line end, valid until the next call of next(); empty if too long.
    std::string_view bytes;
    bool too_long;
  };

  LineSplitter(Encoding encoding, std::uint64_t max_line_bytes)
      : leaves_out_mark_(encoding == Encoding::utf8), max_line_bytes_(max_line_bytes) {}

  /// Supplies the next piece, once next() has returned nothing.
  void give(std::string_view piece) { rest_ = piece; }
  /// Ends the input; the last line may lack its line end.
  void finish() { at_end_ = true; }
  /// Returns the next complete line of the pieces given so far.
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
    if (marked && line.empty()) {  // a mark alone is not a line
      begun_.clear();
      return {};
    }
    return Line{line, too_long_};
  }

  bool leaves_out_mark_;
  std::uint64_t max_line_bytes_;
  std::string_view rest_;  // of the piece
  std::string begun_;      // start of the current line
  bool too_long_ = false, is_given_ = false, at_end_ = false;
};

/// Returns a line without "\n" or "\r\n".
inline std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// Returns the lines of a text one by one. All readers of data use it.
class TextLines {
 public:
  enum class Ends { left_out, kept };  ///< line ends; if kept, a line may have any length

  /// `report`, unless null, must outlive this. Throws Error for a file that is too large or no regular file.
  TextLines(TextInput input, const TextOptions& options, ReadReport* report = nullptr,
            Ends ends = Ends::left_out);

  /// Returns the next line as UTF-8, valid until the next call. Throws Error as read_lines does.
  std::optional<std::string_view> next();
  const std::string& origin() const { return input_.origin; }
  std::size_t number() const { return number_; }  ///< of the line, from 1
  std::string place() const;                      ///< "file:line"
  /// The end of the line, if line ends are left out: "\n" or "\r\n"; "\n" if it has none.
  std::string_view line_end() const { return has_return_ ? "\r\n" : "\n"; }
  /// Counts the line as left out because it is empty.
  void leave_out() {
    if (report_ != nullptr) ++report_->blank;
  }
  /// Calls read(), which reads the row of the present line. If it throws an Error and bad rows are
  /// to be dropped, counts the row and returns false. A row that took further lines is not dropped.
  bool reads_row(const auto& read) {
    const std::size_t line = number_;
    try {
      read();
      return true;
    } catch (const Error& error) {
      if (options_.bad_rows == BadRows::error)
        fail(error.what(), "; data.on_bad_rows=drop leaves such rows out");
      if (number_ != line) throw;
      if (report_ != nullptr && report_->bad_rows++ == 0) report_->first_bad_row = error.what();
      return false;
    }
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
  bool has_return_ = false;  // the line ends in "\r\n"
};

// --- gzip

/// Whether the bytes begin like a gzip file (RFC 1952).
bool is_gzip(std::string_view bytes);

/// Unpacks a gzip file of one or more members piece by piece, in constant memory.
class GzipReader {
 public:
  /// Unpacks the bytes returned by `packed`: the next bytes of the file, valid until its next call,
  /// and nothing at the end. `origin` starts the error messages.
  GzipReader(std::function<std::string_view()> packed, std::string origin);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Returns the next piece of the content, valid until the next call; empty at the end. Throws
  /// Error if the file is damaged, truncated, or followed by other data.
  std::string_view next();
  /// Whether next() can proceed without asking for packed bytes.
  bool has_input() const;

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

/// Returns the content of a gzip file held in memory. Throws Error as GzipReader does, and for
/// content of more than `max_bytes`, before allocating it.
std::string gunzip(std::string_view bytes, std::string_view origin,
                   std::uint64_t max_bytes = std::uint64_t{4} << 30);
/// Throws the Error of gunzip() for content of more than `max_bytes`, in constant memory. The file
/// has `bytes` bytes, which `packed` returns as for GzipReader.
void check_unpacked_size(std::uint64_t bytes, std::function<std::string_view()> packed,
                         std::string_view origin, std::uint64_t max_bytes);
/// Whether a gzip file of this size is too small to unpack to more than `max_bytes`.
bool unpacks_within(std::uint64_t bytes, std::uint64_t max_bytes);
/// Throws an Error if a file is larger than the setting data.max_bytes.
void check_file_size(std::uint64_t bytes, std::string_view origin, std::uint64_t max_bytes);

// --- lines as they arrive

/// A line of input as UTF-8 without its line end, or an error.
struct InputLine {
  std::string text;
  /// The error, "byte 3 of the line (0xEF) is not UTF-8; ..." or that it exceeds max_line_bytes;
  /// otherwise "".
  std::string error;
};

/// A reader of lines from standard input or a file as they arrive, plain or gzip, under the rules of
/// read_lines. Lines that are already available are returned together: files are processed in large
/// batches, and a person or program at the other end of a pipe gets each answer at once. Only the current
/// line is kept, so the input may be endless: max_bytes does not apply.
class LineReader {
 public:
  /// Opens a file; an empty name means standard input. Waits for pipes, including named ones. Throws an
  /// Error if the file cannot be read.
  explicit LineReader(const std::string& file, const TextOptions& options = {});
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Waits for a line and returns it with those already available after it, at most `limit`; empty at the
  /// end. A line that cannot be decoded has an error and does not affect the others; one that is too long
  /// is skipped in constant memory. Throws an Error if reading fails or a gzip file is damaged.
  std::vector<InputLine> next(std::size_t limit);
  std::int64_t line_number() const { return number_; }  ///< of the last line returned, from 1
  /// The number of bytes in the returned lines that were replaced by U+FFFD.
  std::int64_t replaced() const { return replaced_; }

 private:
  std::string_view read_bytes(std::size_t kept = 0);
  void read_piece();
  bool has_more() const;

  TextOptions options_;
  std::string name_, buffer_;
  int descriptor_ = 0;
  LineSplitter splitter_;
  std::unique_ptr<GzipReader> gzip_;
  std::deque<std::pair<InputLine, std::int64_t>> ready_;  // of the last piece, with bytes replaced in each
  std::int64_t number_ = 0, replaced_ = 0;
  bool begun_ = false, at_end_ = false;
  std::exception_ptr failure_;  // why reading stopped
};

}  // namespace heed
