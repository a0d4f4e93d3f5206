#include "terminal_output.h"

#include "heed/base/unicode.h"

namespace heed::programs {
namespace {

/// Where the last character begins that may have bytes yet to come; else the end of the text.
std::size_t end_of_whole_characters(const std::string& text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

TerminalOutput::~TerminalOutput() {
  pass(waiting_.size());
  stream_.rdbuf(terminal_);
}

TerminalOutput::int_type TerminalOutput::overflow(int_type byte) {
  if (traits_type::eq_int_type(byte, traits_type::eof())) return traits_type::not_eof(byte);
  const char one = traits_type::to_char_type(byte);
  return xsputn(&one, 1) == 1 ? byte : traits_type::eof();
}

std::streamsize TerminalOutput::xsputn(const char* bytes, std::streamsize count) {
  waiting_.append(bytes, static_cast<std::size_t>(count));
  return pass(end_of_whole_characters(waiting_)) ? count : 0;
}

int TerminalOutput::sync() {
  return terminal_->pubsync();
}

bool TerminalOutput::pass(std::size_t bytes) {
  const std::string text = unicode::printable_lines(std::string_view(waiting_).substr(0, bytes));
  waiting_.erase(0, bytes);
  const auto size = static_cast<std::streamsize>(text.size());
  return terminal_->sputn(text.data(), size) == size;
}

}  // namespace heed::programs
