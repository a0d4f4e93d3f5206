#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace heed {

class OpenFolder;

/// A checksum of bytes: XXH3, 128 bits. It detects accidental changes and mix-ups; it does not
/// protect against deliberate tampering.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest& operator=(Digest&&) = delete;

  void add(std::string_view bytes);
  /// The digest of everything added so far: 32 hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string compute_digest(std::string_view bytes);
/// Hashes a few bytes by FNV-1a, 64 bits. The result is the same on every machine.
std::uint64_t fnv1a(std::string_view bytes);
/// True for text that has the form of Digest::hex().
bool is_digest(std::string_view text);
/// The digest of a regular file, which need not fit in memory. Throws as read_file does.
std::string file_digest(const std::filesystem::path& path);
std::string file_digest(const OpenFolder& folder, const std::string& name);

}  // namespace heed
