#include "heed/base/digest.h"

#include "heed/base/error.h"
#include "heed/base/file.h"
#include "heed/base/open_folder.h"
#include "heed/base/plain_numbers.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heed {

struct Digest::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Digest::Digest() : state_(std::make_unique<State>()) {
  check(state_->xxh != nullptr, "there is no memory left for a checksum");
  XXH3_128bits_reset(state_->xxh);
}

Digest::~Digest() = default;

void Digest::add(std::string_view bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return formatted("%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                   static_cast<unsigned long long>(hash.low64));
}

std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string compute_digest(std::string_view bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.hex();
}

bool is_digest(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string file_digest(const std::filesystem::path& path) {
  Digest digest;
  FileParts parts(path);
  for (std::string_view part; !(part = parts.next()).empty();) digest.add(part);
  return digest.hex();
}

std::string file_digest(const OpenFolder& folder, const std::string& name) {
  Digest digest;
  folder.read_in_parts(name, [&](std::string_view part) { digest.add(part); });
  return digest.hex();
}

}  // namespace heed
