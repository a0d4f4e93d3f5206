#include "heed/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "heed/core/error.h"

namespace heed {
namespace {

/// A zlib stream that reads the gzip form, released when it goes out of scope.
class Inflater {
 public:
  Inflater() {
    // 15 is the largest window, 16 more asks for the gzip form with its checksum.
    check(inflateInit2(&stream_, 15 + 16) == Z_OK, "zlib could not be started");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  /// Unpacks one member from the front of `bytes` and takes it off.
  void unpack_member(std::string_view& bytes, std::string& text, std::string_view origin) {
    inflateReset(&stream_);
    for (int status = Z_OK; status != Z_STREAM_END;) {
      const std::size_t offered = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream_.avail_in = static_cast<uInt>(offered);
      stream_.next_out = buffer_.data();
      stream_.avail_out = static_cast<uInt>(buffer_.size());
      status = inflate(&stream_, Z_NO_FLUSH);
      bytes.remove_prefix(offered - stream_.avail_in);
      text.append(reinterpret_cast<const char*>(buffer_.data()), buffer_.size() - stream_.avail_out);
      check(status != Z_BUF_ERROR, origin, ": the gzip file is cut off after ", text.size(),
            " unpacked bytes");
      check(status == Z_OK || status == Z_STREAM_END, origin,
            ": the gzip file is damaged: ", stream_.msg != nullptr ? stream_.msg : "unknown form", " (after ",
            text.size(), " unpacked bytes)");
    }
  }

 private:
  z_stream stream_{};
  std::array<Bytef, 1 << 16> buffer_;
};

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1f\x8b");
}

std::string gunzip(std::string_view bytes, std::string_view origin) {
  std::string text;
  Inflater inflater;
  do {
    inflater.unpack_member(bytes, text, origin);
    check(bytes.empty() || is_gzip(bytes), origin, ": the gzip data is followed by ", bytes.size(),
          " other bytes");
  } while (!bytes.empty());
  return text;
}

}  // namespace heed
