#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace heed::programs {

/// Lines of standard input or a file as they come. Those that are there already are handed out together, so
/// that a file is worked on in large batches and a person or a program at the other end of a pipe gets each
/// answer at once.
class LineReader {
 public:
  /// An empty name stands for standard input. Throws an Error when the file cannot be read.
  explicit LineReader(const std::string& file);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// Waits for a line and returns it with those behind it that are there, at most `limit`; empty at the end.
  /// Throws an Error with the line's number when one is not UTF-8.
  std::vector<std::string> next(std::size_t limit);

 private:
  void read_more();
  bool more_is_there() const;
  bool take_line(std::vector<std::string>& lines);

  std::string name_;
  int descriptor_ = 0;
  std::string buffer_;
  std::size_t taken_ = 0;  // bytes of the buffer that were handed out
  std::size_t line_number_ = 0;
  bool at_end_ = false;
};

}  // namespace heed::programs
