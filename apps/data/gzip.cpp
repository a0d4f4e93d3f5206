#include "heed/apps/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "heed/base/error.h"

namespace heed {
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
