#include "heed/data/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "heed/core/error.h"
#include "heed/core/file.h"
#include "heed/data/gzip.h"
#include "heed/data/text_lines.h"

namespace heed {
class LineReader::Source {
 public:
  Source(const std::string& file, const TextOptions& options)
      : options_(options),
        name_(file.empty() ? "standard input" : file),
        splitter_(options.encoding, options.max_line_bytes) {
    if (!file.empty()) descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    check(descriptor_ >= 0, name_, ": cannot be read: ", reason_of(errno));
    struct stat status {};
    const bool is_folder = ::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode);
    if (is_folder) close();
    check(!is_folder, name_, ": this is a folder; lines are read from a file");
  }
  ~Source() { close(); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  std::vector<InputLine> next(std::size_t limit) {
    std::vector<InputLine> lines;
    while (lines.size() < limit) {
      if (!ready_.empty()) {
        lines.push_back(std::move(ready_.front().line));
        replaced_ += ready_.front().replaced;
        ready_.pop_front();
        ++number_;
      } else if (at_end_ || (!lines.empty() && !more_is_there())) {
        break;
      } else {
        try_to_read();
        if (failure_ && !lines.empty()) break;  // these lines first
        if (failure_) std::rethrow_exception(failure_);
      }
    }
    return lines;
  }

  std::int64_t number() const { return number_; }
  std::int64_t replaced() const { return replaced_; }

 private:
  struct Ready {
    InputLine line;
    std::int64_t replaced = 0;
  };

  void close() {
    if (descriptor_ > 0) ::close(descriptor_);
  }

  /// The next bytes of the file; none at its end.
  std::string_view read_bytes() {
    ssize_t got = -1;
    do got = ::read(descriptor_, buffer_.data(), buffer_.size());
    while (got < 0 && errno == EINTR);
    check(got >= 0, name_, ": cannot be read: ", reason_of(errno));
    return {buffer_.data(), static_cast<std::size_t>(got)};
  }

  /// What lies at the front of the input tells a gzip file; its two bytes may come one by one.
  std::string_view first_bytes() {
    std::string_view bytes = read_bytes();
    if (bytes != "\x1f") return bytes;
    front_.assign(1, '\x1f');
    front_ += read_bytes();
    return front_;
  }

  void try_to_read() {
    if (failure_) return;
    try {
      read_piece();
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
  }

  void read_piece() {
    std::string_view piece;
    if (!begun_) {
      begun_ = true;
      piece = first_bytes();
      if (is_gzip(piece)) {
        gzip_.emplace([this, piece,
                       first = true]() mutable { return std::exchange(first, false) ? piece : read_bytes(); },
                      name_);
        piece = gzip_->next();
      }
    } else {
      piece = gzip_ ? gzip_->next() : read_bytes();
    }
    at_end_ = piece.empty();
    if (at_end_)
      splitter_.finish();
    else
      splitter_.give(piece);
    while (const auto line = splitter_.next()) add(line->bytes, line->too_long);
  }

  void add(std::string_view line, bool too_long) {
    Ready& ready = ready_.emplace_back();
    ready.line.error = too_long
                           ? long_line_message(options_.max_line_bytes)
                           : decode_line(without_line_end(line), options_, ready.line.text, ready.replaced);
    if (!ready.line.error.empty()) ready.line.text.clear();
  }

  bool more_is_there() const {
    if (gzip_ && gzip_->has_input()) return true;
    pollfd wanted{descriptor_, POLLIN, 0};
    return ::poll(&wanted, 1, 0) > 0;
  }

  TextOptions options_;
  std::string name_;
  int descriptor_ = 0;
  LineSplitter splitter_;
  std::array<char, 1 << 16> buffer_;
  std::string front_;
  std::optional<GzipReader> gzip_;
  std::deque<Ready> ready_;  // lines of the last piece
  std::int64_t number_ = 0, replaced_ = 0;
  bool begun_ = false, at_end_ = false;
  std::exception_ptr failure_;  // why no more can be read
};

LineReader::LineReader(const std::string& file, const TextOptions& options)
    : source_(std::make_unique<Source>(file, options)) {}

LineReader::~LineReader() = default;

std::vector<InputLine> LineReader::next(std::size_t limit) {
  return source_->next(limit);
}

std::int64_t LineReader::line_number() const {
  return source_->number();
}

std::int64_t LineReader::replaced() const {
  return source_->replaced();
}

}  // namespace heed
