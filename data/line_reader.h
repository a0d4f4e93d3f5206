#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heed/data/text_file.h"

namespace heed {

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
