#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace heed {

/// True when the bytes begin as a gzip file does (RFC 1952).
bool is_gzip(std::string_view bytes);

/// The content of a gzip file of one or more members, piece by piece, in constant memory.
class GzipReader {
 public:
  /// `packed` gives the next bytes of the file, which stay until it is called again, and none at its end.
  /// `origin` begins the messages of errors.
  GzipReader(std::function<std::string_view()> packed, std::string origin);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// The next piece of the content, which stays until the next call; none at the end. Throws Error when the
  /// file is damaged, cut off, or followed by something else.
  std::string_view next();
  /// Whether next() can go on without asking for packed bytes.
  bool has_input() const;

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

/// The content of a gzip file that lies in memory. Throws Error as GzipReader does, and, before it takes room
/// for it, for content of more than `max_bytes`.
std::string gunzip(std::string_view bytes, std::string_view origin,
                   std::uint64_t max_bytes = std::uint64_t{4} << 30);
/// Throws the Error of such content, in constant memory: of the `bytes` that `packed` gives as GzipReader has
/// it.
void check_unpacked_size(std::uint64_t bytes, std::function<std::string_view()> packed,
                         std::string_view origin, std::uint64_t max_bytes);
/// True for a gzip file that is too small to unpack to more than `max_bytes`.
bool unpacks_within(std::uint64_t bytes, std::uint64_t max_bytes);
/// Throws the Error of a file that is longer than the limit of the setting data.max_bytes.
void check_file_size(std::uint64_t bytes, std::string_view origin, std::uint64_t max_bytes);

}  // namespace heed
