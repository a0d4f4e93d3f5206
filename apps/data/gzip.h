#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace heed {

/// Whether the bytes begin like a gzip file (RFC 1952).
bool is_gzip(std::string_view bytes);

/// Unpacks a gzip file of one or more members piece by piece, in constant memory.
class GzipReader {
 public:
  /// Unpacks the bytes returned by `packed`: the next bytes of the file, valid until its next call,
  /// and nothing at the end. `origin` starts the error messages.
  GzipReader(std::function<std::string_view()> packed, std::string origin);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Returns the next piece of the content, valid until the next call; empty at the end. Throws
  /// Error if the file is damaged, truncated, or followed by other data.
  std::string_view next();
  /// Whether next() can proceed without asking for packed bytes.
  bool has_input() const;

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

/// Returns the content of a gzip file held in memory. Throws Error as GzipReader does, and for
/// content of more than `max_bytes`, before allocating it.
std::string gunzip(std::string_view bytes, std::string_view origin,
                   std::uint64_t max_bytes = std::uint64_t{4} << 30);
/// Throws the Error of gunzip() for content of more than `max_bytes`, in constant memory. The file
/// has `bytes` bytes, which `packed` returns as for GzipReader.
void check_unpacked_size(std::uint64_t bytes, std::function<std::string_view()> packed,
                         std::string_view origin, std::uint64_t max_bytes);
/// Whether a gzip file of this size is too small to unpack to more than `max_bytes`.
bool unpacks_within(std::uint64_t bytes, std::uint64_t max_bytes);
/// Throws an Error if a file is larger than the setting data.max_bytes.
void check_file_size(std::uint64_t bytes, std::string_view origin, std::uint64_t max_bytes);

}  // namespace heed
