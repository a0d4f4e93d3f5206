#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/data/text_list.h"

namespace heed {

/// How the bytes of a text file stand for characters. It is always named by the caller, never guessed.
enum class Encoding { utf8, latin1, cp1252 };
/// "utf-8", "latin-1", "cp1252".
std::vector<std::string> encoding_names();
/// Throws Error on any other name.
Encoding encoding_from_name(std::string_view name);

/// What becomes of bytes that the encoding does not have: an Error, or U+FFFD, one for each ill-formed
/// sequence of UTF-8 (see unicode::CodePoint) and for each byte of cp1252.
enum class BadBytes { error, replace };
/// "error", "replace".
std::vector<std::string> bad_bytes_names();
/// Throws Error on any other name.
BadBytes bad_bytes_from_name(std::string_view name);

/// How every reader of texts reads.
struct TextOptions {
  Encoding encoding = Encoding::utf8;
  BadBytes bad_bytes = BadBytes::error;
  /// The most bytes of one file, unpacked.
  std::uint64_t max_bytes = std::uint64_t{4} << 30;
  /// The most bytes of a line, line end included, where a text is read by lines.
  std::uint64_t max_line_bytes = std::uint64_t{64} << 20;
};

/// What a reader met that its caller is to say.
struct ReadReport {
  std::int64_t replaced = 0;  ///< bytes in whose place stands U+FFFD
  std::int64_t blank = 0;     ///< blank lines that were left out, of tables and of two files of lines
};

/// The lines of a text file, plain or gzip (told apart by its first bytes), as UTF-8 without line ends. Lines
/// end in "\n" or "\r\n"; the last one may lack it. A UTF-8 byte-order mark at the start is no text and is
/// left out; a NUL is a character like others. Throws Error with path and line number on bytes that the
/// encoding does not have, on what is no regular file, on an empty file, on a damaged or cut-off gzip file,
/// and beyond the limits of the options, before memory is taken.
TextList read_lines(const std::filesystem::path& path, const TextOptions& options = {},
                    ReadReport* report = nullptr);
/// The same for bytes already in memory; `origin` says in errors where they came from.
TextList parse_lines(std::string_view bytes, std::string_view origin, const TextOptions& options = {},
                     ReadReport* report = nullptr);

/// The text of such a file as UTF-8, line by line, each with its line end as it stands; a line may have any length. The
/// file is never in memory as a whole. Throws as read_lines does.
void read_text_by_lines(const std::filesystem::path& path, const TextOptions& options,
                        const std::function<void(std::string_view line)>& take, ReadReport* report = nullptr);

/// The bytes of a file that parse_* are to read. Throws Error when it is no regular file, and when it is
/// longer than max_bytes, before it is read.
std::string read_limited_file(const std::filesystem::path& path, const TextOptions& options);

/// Sentences and their translations: line i of one belongs to line i of the other.
struct ParallelText {
  TextList source, target;
  std::size_t size() const { return source.size(); }
};

/// Data in three parts that have nothing in common: to learn from, to measure progress with, and for a test.
template <class Data>
struct DataParts {
  Data train, valid, test;
};

/// Reads two files of lines (see read_lines) side by side. Lines without a character in either file are
/// counted and left out. Throws Error with both counts when they differ.
ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TextOptions& options = {}, ReadReport* report = nullptr);

/// One row of a table and the line where it begins, from 1.
struct TableRow {
  std::vector<std::string> fields;
  std::size_t line = 0;
};

/// Gets each row as it is read. It may take the fields away.
using TakeRow = std::function<void(TableRow& row)>;

/// Reads comma-separated values as RFC 4180 has them: a field in quotes may hold commas, line ends and
/// doubled quotes, which stand for one, and its line ends become "\n"; a backslash is an ordinary character,
/// before a quote as well. Plain or gzip. A line without a character is no row. Throws Error with file and line as
/// read_lines does, on a quote inside an unquoted field, text behind a closing quote, a quote that is never closed, a
/// row with another number of fields than the first, or with more than 65,536, and where there is no row.
void read_csv(const std::filesystem::path& path, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr);
/// The same for bytes already in memory; `origin` says in errors where they came from.
void parse_csv(std::string_view bytes, std::string_view origin, const TakeRow& take,
               const TextOptions& options = {}, ReadReport* report = nullptr);

/// Reads tab-separated values: a row is a line, and all but tabs is text, quotes too. A line without a character is no
/// row. Throws Error with file and line as read_lines does, and on rows as read_csv does.
void read_tsv(const std::filesystem::path& path, const TakeRow& take, const TextOptions& options = {},
              ReadReport* report = nullptr);
/// The same for bytes already in memory.
void parse_tsv(std::string_view bytes, std::string_view origin, const TakeRow& take,
               const TextOptions& options = {}, ReadReport* report = nullptr);

// What the readers of whole files and of streams have in common: lines from bytes that come in pieces, and
// characters from the bytes of a line.

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

/// A line of input as UTF-8 without its line end, or what is wrong with it.
struct InputLine {
  std::string text;
  /// "byte 3 of the line (0xEF) is not UTF-8; ...", or longer than max_line_bytes; else "".
  std::string error;
};

/// Lines of standard input or a file as they come, plain or gzip, under the rules of read_lines. Those that
/// are there already are handed out together, so that a file is worked on in large batches and a person or a
/// program at the other end of a pipe gets each answer at once. Of the lines that follow only the one under
/// way is kept, so that the input may be endless: max_bytes is no limit here.
class LineReader {
 public:
  /// An empty name stands for standard input; pipes, named ones too, are waited for. Throws an Error when the
  /// file cannot be read.
  explicit LineReader(const std::string& file, const TextOptions& options = {});
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Waits for a line and returns it with those behind it that are there, at most `limit`; empty at the end.
  /// A line that cannot be read costs that line alone: it comes with an error, and one that is too long is
  /// skipped over in constant memory. Throws an Error when reading fails and when a gzip file is damaged.
  std::vector<InputLine> next(std::size_t limit);
  /// The number of the last line that was handed out, from 1.
  std::int64_t line_number() const;
  /// Bytes of the lines handed out in whose place stands U+FFFD.
  std::int64_t replaced() const;

 private:
  class Source;
  std::unique_ptr<Source> source_;
};

}  // namespace heed
