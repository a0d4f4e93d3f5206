#pragma once

#include <ostream>
#include <streambuf>
#include <string>

namespace heed::programs {

/// While it lives, nothing written to the stream can steer the terminal behind it
/// (see unicode::printable_lines).
class TerminalOutput : private std::streambuf {
 public:
  explicit TerminalOutput(std::ostream& stream) : stream_(stream), terminal_(stream.rdbuf(this)) {}
  ~TerminalOutput() override;
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

 private:
  int_type overflow(int_type byte) override;
  std::streamsize xsputn(const char* bytes, std::streamsize count) override;
  int sync() override;
  bool pass(std::size_t bytes);

  std::ostream& stream_;
  std::streambuf* const terminal_;
  std::string waiting_;
};

}  // namespace heed::programs
