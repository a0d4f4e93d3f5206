#include "heed/apps/data/text_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "heed/base/descriptor.h"
#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/plain_numbers.h"
#include "heed/base/unicode.h"

namespace heed {

void TextPlaces::add_run(const std::shared_ptr<const std::string>& origin) {
  runs_.push_back({size(), origin});
}

void TextPlaces::add(std::string_view origin, std::size_t line) {
  if (runs_.empty() || *runs_.back().origin != origin) add_run(std::make_shared<const std::string>(origin));
  lines_.push_back(line);
}

const TextPlaces::Run& TextPlaces::find_run(std::size_t index) const {
  return *(std::ranges::upper_bound(runs_, index, {}, &Run::first) - 1);
}

std::string TextPlaces::operator[](std::size_t index) const {
  const std::string& origin = *find_run(index).origin;
  if (lines_[index] == 0) return origin;
  return concat_text(origin, origin.ends_with(' ') ? "" : ":", lines_[index]);
}

TextPlaces TextPlaces::picked(std::span<const std::size_t> indices) const {
  TextPlaces result;
  for (const std::size_t index : indices) {
    const Run& run = find_run(index);
    if (result.runs_.empty() || result.runs_.back().origin != run.origin) result.add_run(run.origin);
    result.lines_.push_back(lines_[index]);
  }
  return result;
}

namespace {

/// The characters of Windows code page 1252 for the bytes 0x80 to 0x9F; 0 where undefined.
constexpr std::array<char32_t, 32> cp1252_high = {
    0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017D, 0,      0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

std::string hex(char byte) {
  return formatted("0x%02X", static_cast<unsigned>(static_cast<unsigned char>(byte)));
}

std::string decode_utf8(std::string_view line, BadBytes policy, std::string& text, std::int64_t& replaced) {
  const std::size_t at = unicode::find_invalid(line);
  if (at == std::string_view::npos) {
    text = line;
    return "";
  }
  if (policy == BadBytes::error)
    return concat_text("byte ", at + 1, " of the line (", hex(line[at]),
                       ") is not UTF-8; if the file is in another encoding, name it (latin-1 or cp1252)");
  for (std::size_t i = at; i < line.size();) {
    const unicode::CodePoint c = unicode::decode(line, i);
    if (!c.valid) replaced += c.length;
    i += static_cast<std::size_t>(c.length);
  }
  text = unicode::replace_invalid(line);
  return "";
}

std::string decode_single_bytes(std::string_view line, const TextOptions& options, std::string& text,
                                std::int64_t& replaced) {
  text.clear();
  text.reserve(line.size());
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    char32_t value = byte;
    if (options.encoding == Encoding::cp1252 && byte >= 0x80 && byte < 0xA0)
      value = cp1252_high[byte - 0x80u];
    if (value == 0 && byte != 0) {
      if (options.bad_bytes == BadBytes::error)
        return concat_text("the byte ", hex(c), " is undefined in cp1252");
      value = 0xFFFD;
      ++replaced;
    }
    unicode::append(text, value);
  }
  return "";
}

void check_size_on_disk(const std::filesystem::path& path, const TextOptions& options) {
  std::error_code unknown;  // anything without a size is refused by the reader
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown) check_file_size(size, path.string(), options.max_bytes);
}

using Pieces = std::function<std::string_view()>;

/// Returns the bytes of an input, as stored.
Pieces packed_pieces(const TextInput& input) {
  if (input.bytes) return [bytes = *input.bytes]() mutable { return std::exchange(bytes, {}); };
  return [parts = std::make_shared<FileParts>(input.path)] { return parts->next(); };
}

/// Returns the bytes of the text, piece by piece, unpacked. The size is checked before the first
/// piece.
Pieces open_pieces(const TextInput& input, const TextOptions& options) {
  Pieces packed = packed_pieces(input);
  const std::string_view first = packed();
  std::uint64_t size = first.size();
  if (!input.bytes) size = std::max<std::uint64_t>(size, std::filesystem::file_size(input.path));
  check_file_size(size, input.origin, options.max_bytes);
  Pieces all = [packed = std::move(packed), first, is_first = true]() mutable {
    return std::exchange(is_first, false) ? first : packed();
  };
  if (is_gzip(first)) {
    if (!unpacks_within(size, options.max_bytes))
      check_unpacked_size(size, packed_pieces(input), input.origin, options.max_bytes);
    return [reader = std::make_shared<GzipReader>(std::move(all), input.origin)] { return reader->next(); };
  }
  return [all = std::move(all), bytes = std::uint64_t{0}, origin = input.origin,
          most = options.max_bytes]() mutable {
    const std::string_view piece = all();
    bytes += piece.size();  // the file may have grown
    check_file_size(bytes, origin, most);
    return piece;
  };
}

/// Decodes a line without its line end into `text`, as UTF-8. Returns the fault, or "".
std::string decode_line(std::string_view line, const TextOptions& options, std::string& text,
                        std::int64_t& replaced) {
  return options.encoding == Encoding::utf8 ? decode_utf8(line, options.bad_bytes, text, replaced)
                                            : decode_single_bytes(line, options, text, replaced);
}

constexpr const char* returns_alone =
    "its lines end in CR alone; convert it so that they end in LF (tr '\\r' '\\n')";

/// Whether a text is a single line that contains CRs. Files from old Macs would become one line,
/// and so a single example.
bool has_returns_alone(std::string_view line) {
  return !line.ends_with('\n') && without_line_end(line).find('\r') != std::string_view::npos;
}

std::string long_line_message(std::uint64_t max_line_bytes) {
  return concat_text("the line is longer than the ", max_line_bytes,
                     " bytes that data.max_line_bytes allows; is this a text with line ends?");
}

}  // namespace

TextLines::TextLines(TextInput input, const TextOptions& options, ReadReport* report, Ends ends)
    : input_(std::move(input)),
      options_(options),
      report_(report),
      ends_(ends),
      splitter_(options.encoding,
                ends == Ends::kept ? std::numeric_limits<std::uint64_t>::max() : options.max_line_bytes),
      pieces_(open_pieces(input_, options)) {}

std::optional<LineSplitter::Line> TextLines::next_bytes() {
  while (pieces_) {
    if (const auto line = splitter_.next()) return line;
    check_stop();
    const std::string_view piece = pieces_();
    if (piece.empty()) {
      splitter_.finish();
      pieces_ = nullptr;
    } else {
      splitter_.give(piece);
    }
  }
  return splitter_.next();
}

std::optional<std::string_view> TextLines::next() {
  const std::optional<LineSplitter::Line> line = next_bytes();
  check(line || number_ > 0, input_.origin, ": the file is empty");
  if (!line) return {};
  ++number_;
  if (line->too_long) fail(place(), ": ", long_line_message(options_.max_line_bytes));
  std::int64_t replaced = 0;
  has_return_ = line->bytes.ends_with("\r\n");
  const std::string_view bytes = ends_ == Ends::kept ? line->bytes : without_line_end(line->bytes);
  if (ends_ == Ends::left_out && number_ == 1 && has_returns_alone(line->bytes))
    fail(place(), ": ", returns_alone);
  const std::string error = decode_line(bytes, options_, text_, replaced);
  if (!error.empty()) fail(place(), ": ", error);
  if (report_ != nullptr) report_->replaced += replaced;
  return text_;
}

std::string TextLines::place() const {
  return concat_text(input_.origin, ":", number_);
}

std::string read_limited_file(const std::filesystem::path& path, const TextOptions& options) {
  check_size_on_disk(path, options);
  return read_file(path);
}

TextList read_lines(const TextInput& input, const TextOptions& options, ReadReport* report) {
  TextLines lines(input, options, report);
  TextList list;
  while (const auto line = lines.next()) list.push_back(*line);
  return list;
}

void read_text_by_lines(const std::filesystem::path& path, const TextOptions& options,
                        const std::function<void(std::string_view line)>& take, ReadReport* report) {
  TextLines lines(path, options, report, TextLines::Ends::kept);
  while (const auto line = lines.next()) take(*line);
}

ParallelText read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                const TextOptions& options, ReadReport* report) {
  TextLines sources(source, options, report), targets(target, options, report);
  ParallelText text;
  for (;;) {
    const auto one = sources.next(), other = targets.next();
    if (!one && !other) return text;
    if (one && other && one->empty() && other->empty()) {
      sources.leave_out();
    } else if (one && other) {
      text.source.push_back(*one);
      text.target.push_back(*other);
    } else {  // count the lines of the longer file
      text = {};
      while (sources.next() || targets.next()) continue;
      fail("the two files do not belong together: ", source.string(), " has ", sources.number(), " lines, ",
           target.string(), " has ", targets.number());
    }
  }
}

LineReader::LineReader(const std::string& file, const TextOptions& options)
    : options_(options),
      name_(file.empty() ? "standard input" : file),
      buffer_(1 << 16, '\0'),
      splitter_(options.encoding, options.max_line_bytes) {
  if (!file.empty()) descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  check(descriptor_ >= 0, name_, ": cannot be read: ", reason_of(errno), home_hint(name_));
  struct stat status {};
  if (::fstat(descriptor_, &status) < 0 || !S_ISDIR(status.st_mode)) return;
  if (descriptor_ > 0) ::close(descriptor_);
  fail(name_, ": this is a folder; lines are read from a file");
}

LineReader::~LineReader() {
  if (descriptor_ > 0) ::close(descriptor_);
}

std::vector<InputLine> LineReader::next(std::size_t limit) {
  std::vector<InputLine> lines;
  while (lines.size() < limit) {
    if (!ready_.empty()) {
      lines.push_back(std::move(ready_.front().first));
      replaced_ += ready_.front().second;
      ready_.pop_front();
      ++number_;
    } else if (at_end_ || (!lines.empty() && !has_more())) {
      break;
    } else {
      try {
        if (!failure_) read_piece();
      } catch (const Error&) {
        failure_ = std::current_exception();
      }
      if (failure_ && !lines.empty()) break;  // return these lines first
      if (failure_) std::rethrow_exception(failure_);
    }
  }
  return lines;
}

/// Reads the next bytes of the file behind `kept` bytes, and returns all of them; empty at its end.
std::string_view LineReader::read_bytes(std::size_t kept) {
  ssize_t got = -1;
  do got = ::read(descriptor_, buffer_.data() + kept, buffer_.size() - kept);
  while (got < 0 && errno == EINTR);
  check(got >= 0, name_, ": cannot be read: ", reason_of(errno));
  return std::string_view(buffer_).substr(0, kept + static_cast<std::size_t>(got));
}

void LineReader::read_piece() {
  std::string_view piece = gzip_ ? gzip_->next() : read_bytes();
  if (!std::exchange(begun_, true)) {
    if (piece == "\x1f") piece = read_bytes(1);  // the two magic bytes of gzip may arrive separately
    if (is_gzip(piece)) {
      const auto packed = [this, piece, first = true]() mutable {
        return std::exchange(first, false) ? piece : read_bytes();
      };
      gzip_ = std::make_unique<GzipReader>(packed, name_);
      piece = gzip_->next();
    }
  }
  at_end_ = piece.empty();
  if (at_end_)
    splitter_.finish();
  else
    splitter_.give(piece);
  while (const auto line = splitter_.next()) {
    const bool is_first = number_ == 0 && ready_.empty();
    auto& [input, replaced] = ready_.emplace_back();
    input.error = line->too_long ? long_line_message(options_.max_line_bytes)
                  : is_first && has_returns_alone(line->bytes)
                      ? returns_alone
                      : decode_line(without_line_end(line->bytes), options_, input.text, replaced);
    if (!input.error.empty()) input.text.clear();
  }
}

bool LineReader::has_more() const {
  if (gzip_ && gzip_->has_input()) return true;
  pollfd wanted{descriptor_, POLLIN, 0};
  return ::poll(&wanted, 1, 0) > 0;
}

// --- gzip

namespace {

/// The most bytes that one packed byte can unpack to (a run of 258 in two bits, after the first bytes of
/// the run).
constexpr std::uint64_t largest_ratio = 1032;

/// Returns the bytes once, then nothing.
std::function<std::string_view()> once(std::string_view bytes) {
  return [bytes]() mutable { return std::exchange(bytes, {}); };
}

}  // namespace

struct GzipReader::Stream {
  Stream(std::function<std::string_view()> source, std::string name)
      : packed(std::move(source)), origin(std::move(name)) {
    // 15: the largest window; 16: the gzip format with its checksum.
    check(inflateInit2(&z, 15 + 16) == Z_OK, "zlib could not be started");
  }
  ~Stream() { inflateEnd(&z); }

  /// Ensures that packed bytes are available; false at the end of the file.
  bool fill() {
    if (rest.empty() && !at_end) {
      rest = packed();
      at_end = rest.empty();
    }
    return !rest.empty();
  }

  /// Skips zeros after a member, which pad archives on tape; false at the end.
  bool skip_padding() {
    while (fill() && rest.front() == '\0') {
      padded = true;
      rest.remove_prefix(std::min(rest.find_first_not_of('\0'), rest.size()));
    }
    check(rest.empty() || !padded, origin, ": the gzip data is followed by zeros and ", rest.size(),
          " other bytes");
    return !rest.empty();
  }

  /// Begins the next member. Its first two bytes may arrive in two pieces.
  void begin_member() {
    check(static_cast<unsigned char>(rest.front()) == 0x1f && (rest.size() == 1 || is_gzip(rest)), origin,
          ": the gzip data is followed by ", rest.size(), " other bytes");
    inflateReset(&z);
    in_member = true;
  }

  z_stream z{};
  std::function<std::string_view()> packed;
  std::string origin;
  std::string_view rest;  // packed bytes not yet consumed
  bool at_end = false;    // the source has no more
  bool in_member = true;
  bool padded = false;       // zeros followed a member
  bool output_full = false;  // zlib may have more output
  std::uint64_t unpacked = 0;
  std::array<char, 1 << 16> buffer;
};

GzipReader::GzipReader(std::function<std::string_view()> packed, std::string origin)
    : stream_(std::make_unique<Stream>(std::move(packed), std::move(origin))) {}

GzipReader::~GzipReader() = default;

bool GzipReader::has_input() const {
  return stream_->output_full || !stream_->rest.empty();
}

std::string_view GzipReader::next() {
  Stream& s = *stream_;
  for (;;) {
    if (!s.in_member) {
      if (!s.skip_padding()) return {};
      s.begin_member();
    }
    check(s.output_full || s.fill(), s.origin, ": the gzip file is cut off after ", s.unpacked,
          " unpacked bytes");
    const std::size_t offered = std::min<std::size_t>(s.rest.size(), std::numeric_limits<uInt>::max());
    s.z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(s.rest.data()));
    s.z.avail_in = static_cast<uInt>(offered);
    s.z.next_out = reinterpret_cast<Bytef*>(s.buffer.data());
    s.z.avail_out = static_cast<uInt>(s.buffer.size());
    const int status = inflate(&s.z, Z_NO_FLUSH);
    s.rest.remove_prefix(offered - s.z.avail_in);
    const std::size_t got = s.buffer.size() - s.z.avail_out;
    s.unpacked += got;
    s.in_member = status != Z_STREAM_END;
    s.output_full = s.in_member && s.z.avail_out == 0;
    // A buffer error means that no progress was possible without more input; the next round provides it.
    check(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, s.origin,
          ": the gzip file is damaged: ", s.z.msg != nullptr ? s.z.msg : "unknown form", " (after ",
          s.unpacked, " unpacked bytes)");
    if (got > 0) return {s.buffer.data(), got};
  }
}

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1f\x8b");
}

void check_file_size(std::uint64_t bytes, std::string_view origin, std::uint64_t max_bytes) {
  check(bytes <= max_bytes, origin, ": the file has ", bytes, " bytes, more than the ", max_bytes,
        " that data.max_bytes allows; raise that setting if the file is meant to be so large");
}

bool unpacks_within(std::uint64_t bytes, std::uint64_t max_bytes) {
  return bytes <= max_bytes / largest_ratio;
}

void check_unpacked_size(std::uint64_t bytes, std::function<std::string_view()> packed,
                         std::string_view origin, std::uint64_t max_bytes) {
  GzipReader reader(std::move(packed), std::string(origin));
  std::uint64_t size = 0;
  for (std::string_view piece; !(piece = reader.next()).empty();) {
    size += piece.size();
    check(size <= max_bytes, origin, ": the gzip file of ", bytes, " bytes unpacks to more than the ",
          max_bytes,
          " bytes that data.max_bytes allows; raise that setting if the file is meant to be so large");
  }
}

std::string gunzip(std::string_view bytes, std::string_view origin, std::uint64_t max_bytes) {
  if (!unpacks_within(bytes.size(), max_bytes))
    check_unpacked_size(bytes.size(), once(bytes), origin, max_bytes);
  GzipReader reader(once(bytes), std::string(origin));
  std::string text;
  for (std::string_view piece; !(piece = reader.next()).empty();) text += piece;
  return text;
}

}  // namespace heed
