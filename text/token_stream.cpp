#include "heed/text/token_stream.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "heed/base/error.h"
#include "heed/core/random.h"

namespace heed {
namespace {

// The two random streams of an epoch: the offset of the first window, and the order of the windows.
enum class WindowStream : std::uint32_t { offset, order };

RandomKey window_key(std::uint64_t seed, std::uint32_t epoch, WindowStream stream) {
  return {seed, epoch, static_cast<std::uint32_t>(stream)};
}

}  // namespace

WindowPlan::WindowPlan(std::int64_t tokens, const WindowOptions& options)
    : tokens_(tokens), options_(options) {
  check(options.length >= 1 && options.rows >= 1, "windows need a length and rows of at least 1, got ",
        options.length, " and ", options.rows);
  const std::int64_t needed = checked_sum("a window's length", options.length, 1);
  check(tokens >= needed, "the text has ", tokens, " tokens, but a window of ", options.length, " needs ",
        needed, "; take a longer text or a shorter window");
}

WindowPlan::Epoch WindowPlan::epoch(std::uint32_t epoch) const {
  // If the text is shorter than two windows, the first must not begin so late that none fits.
  const std::int64_t places = std::min(options_.length, tokens_ - options_.length);
  Epoch result;
  result.first_ = Draws(window_key(options_.seed, epoch, WindowStream::offset)).below(places);
  result.length_ = options_.length;
  result.rows_ = static_cast<std::size_t>(options_.rows);
  const std::int64_t windows = (tokens_ - 1 - result.first_) / options_.length;  // each needs one more token
  check(windows < std::int64_t{1} << 32, "a text of ", tokens_, " tokens has ", windows,
        " windows, more than 2^32; take longer ones");
  result.order_.resize(static_cast<std::size_t>(windows));
  std::iota(result.order_.begin(), result.order_.end(), 0U);
  const RandomKey key = window_key(options_.seed, epoch, WindowStream::order);
  for (std::size_t i = result.order_.size(); i > 1; --i)  // Fisher-Yates
    std::swap(result.order_[i - 1], result.order_[below(random_word(key, i), i)]);
  return result;
}

std::vector<Window> WindowPlan::Epoch::operator[](std::size_t batch) const {
  std::vector<Window> windows;
  for (std::size_t i = batch * rows_; i < std::min((batch + 1) * rows_, order_.size()); ++i)
    windows.push_back({first_ + static_cast<std::int64_t>(order_[i]) * length_, length_, 0});
  return windows;
}

std::vector<Window> strided_windows(std::int64_t tokens, std::int64_t length, std::int64_t stride) {
  check(length >= 1 && stride >= 1 && stride <= length, "the stride must be 1 to the window's length ",
        length, ", but is ", stride);
  check(tokens >= 2, "there is nothing to predict in a text of ", tokens, " tokens");
  const std::int64_t targets = tokens - 1;
  if (targets <= length) return {{0, targets, 0}};
  std::vector<Window> windows{{0, length, 0}};
  for (std::int64_t done = length; done < targets;) {
    const std::int64_t end = std::min(done + stride, targets);
    windows.push_back({end - length, length, length - (end - done)});
    done = end;
  }
  return windows;
}

// --- Spool

constexpr std::size_t written_at_once = std::size_t{1} << 20;

/// Returns $TMPDIR, or /tmp. If it is not a folder, creating the file throws.
static std::filesystem::path temporary_folder() {
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(none);
  const char* named = std::getenv("TMPDIR");
  return none && named != nullptr ? std::filesystem::path(named) : folder;
}

struct Spool::File {
  int descriptor = -1;
  std::int64_t size = 0;

  File() {
    std::string name = (temporary_folder() / "heed-text-XXXXXX").string();
    descriptor = ::mkostemp(name.data(), O_CLOEXEC);
    check(descriptor >= 0, name,
          ": the file for a text that does not fit in memory cannot be made: ", reason_of(errno),
          "; set TMPDIR to another folder, or data.memory_bytes to keep more in memory");
    ::unlink(name.c_str());
  }
  ~File() { ::close(descriptor); }
  File& operator=(File&&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::pwrite(descriptor, bytes.data(), bytes.size(), size);
      if (done < 0 && errno == EINTR) continue;
      check(done > 0, "the file in ", temporary_folder().string(),
            " for a text that does not fit in memory cannot be written: ", reason_of(errno),
            "; set TMPDIR to another folder, or data.memory_bytes to keep more in memory");
      size += done;
      bytes.remove_prefix(static_cast<std::size_t>(done));
    }
  }

  void read(std::int64_t begin, char* to, std::size_t count) const {
    while (count > 0) {
      const ssize_t done = ::pread(descriptor, to, count, begin);
      if (done < 0 && errno == EINTR) continue;
      check(done > 0, "a text that does not fit in memory cannot be read back: ",
            done < 0 ? reason_of(errno) : "its file is cut off");
      begin += done;
      to += done;
      count -= static_cast<std::size_t>(done);
    }
  }
};

Spool::Spool(std::int64_t memory_bytes) : memory_bytes_(memory_bytes) {}
Spool::Spool(Spool&&) noexcept = default;
Spool& Spool::operator=(Spool&&) noexcept = default;
Spool::~Spool() = default;

void Spool::add(std::string_view bytes) {
  memory_ += bytes;
  size_ += static_cast<std::int64_t>(bytes.size());
  if (!file_ && size_ > memory_bytes_) file_ = std::make_unique<File>();
  if (!file_ || memory_.size() < written_at_once) return;
  file_->write(memory_);
  memory_ = {};
}

std::string Spool::read(std::int64_t begin, std::int64_t count) const {
  check(begin >= 0 && count >= 0 && count <= size_ && begin <= size_ - count, "a text of ", size_,
        " bytes has no ", count, " from ", begin, " on");
  const std::int64_t of_file = file_ ? std::clamp<std::int64_t>(file_->size - begin, 0, count) : 0;
  std::string bytes(static_cast<std::size_t>(of_file), '\0');
  if (of_file > 0) file_->read(begin, bytes.data(), bytes.size());
  const std::int64_t first = begin + of_file - (file_ ? file_->size : 0);
  return bytes.append(memory_, static_cast<std::size_t>(std::max<std::int64_t>(first, 0)),
                      static_cast<std::size_t>(count - of_file));
}

// --- TokenStream

void TokenStream::add(std::span<const std::int32_t> tokens) {
  if (bytes_ == 4)
    return spool_.add({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::int32_t)});
  std::vector<std::uint16_t> narrow;
  narrow.reserve(tokens.size());
  for (const std::int32_t token : tokens) narrow.push_back(static_cast<std::uint16_t>(token));
  spool_.add({reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(std::uint16_t)});
}

Tokens TokenStream::read(std::int64_t begin, std::int64_t count) const {
  check(begin >= 0 && count >= 0 && count <= size() && begin <= size() - count, "a stream of ", size(),
        " tokens has no ", count, " from ", begin, " on");
  const std::string bytes = spool_.read(begin * bytes_, count * bytes_);
  Tokens tokens(static_cast<std::size_t>(count));
  if (bytes_ == 4) {
    if (count > 0) std::memcpy(tokens.data(), bytes.data(), bytes.size());
    return tokens;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::uint16_t narrow = 0;
    std::memcpy(&narrow, bytes.data() + 2 * i, 2);
    tokens[i] = narrow;
  }
  return tokens;
}

}  // namespace heed
