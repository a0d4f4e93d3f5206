#include "line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "heed/core/error.h"
#include "heed/core/unicode.h"

namespace heed::programs {

LineReader::LineReader(const std::string& file) : name_(file.empty() ? "standard input" : file) {
  if (file.empty()) return;
  descriptor_ = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor_ >= 0, file, ": cannot be read: ", std::generic_category().message(errno));
}

LineReader::~LineReader() {
  if (descriptor_ > 0) close(descriptor_);
}

void LineReader::read_more() {
  buffer_.erase(0, taken_);
  taken_ = 0;
  const std::size_t held = buffer_.size(), chunk = 1 << 16;
  buffer_.resize(held + chunk);
  ssize_t got = -1;
  do got = read(descriptor_, buffer_.data() + held, chunk);
  while (got < 0 && errno == EINTR);
  buffer_.resize(held + static_cast<std::size_t>(got > 0 ? got : 0));
  check(got >= 0, name_, ": cannot be read: ", std::generic_category().message(errno));
  at_end_ = got == 0;
}

bool LineReader::more_is_there() const {
  pollfd wanted{descriptor_, POLLIN, 0};
  return poll(&wanted, 1, 0) > 0;
}

bool LineReader::take_line(std::vector<std::string>& lines) {
  std::size_t end = buffer_.find('\n', taken_);
  if (end == std::string::npos) {
    if (!at_end_ || taken_ == buffer_.size()) return false;
    end = buffer_.size();  // the last line lacks its line end
  }
  std::string line = buffer_.substr(taken_, end - taken_);
  taken_ = std::min(end + 1, buffer_.size());
  ++line_number_;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  const std::size_t invalid = unicode::find_invalid(line);
  check(invalid == std::string::npos, name_, ", line ", line_number_, ": byte ", invalid + 1,
        " is not UTF-8");
  lines.push_back(std::move(line));
  return true;
}

std::vector<std::string> LineReader::next(std::size_t limit) {
  std::vector<std::string> lines;
  while (lines.size() < limit) {
    if (take_line(lines)) continue;
    if (at_end_ || (!lines.empty() && !more_is_there())) break;
    read_more();
  }
  return lines;
}

}  // namespace heed::programs
