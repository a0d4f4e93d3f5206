#include "heed/data/character_map.h"

#include <cstring>

#include "heed/core/error.h"
#include "heed/core/unicode.h"

namespace heed {
namespace {

std::string from_base64(std::string_view text) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = letters.find(c);
    check(value != std::string_view::npos, "normalizer.precompiled_charsmap is not base64");
    bits = (bits << 6 | static_cast<std::uint32_t>(value)) & 0xFFFFFF;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

std::uint32_t little_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// A unit of the double array: 31 bits of value, or a label, an offset and whether a string ends here.
constexpr std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
constexpr std::uint32_t label_of(std::uint32_t unit) {
  return unit & ((1u << 31) | 0xFF);
}

}  // namespace

CharacterMap::CharacterMap(std::string_view base64) {
  const std::string bytes = from_base64(base64);
  check(bytes.size() >= 4, "normalizer.precompiled_charsmap is too short");
  const std::size_t size = little_endian(bytes.data());
  check(size <= bytes.size() - 4 && size % 4 == 0 && size > 0,
        "normalizer.precompiled_charsmap says that its tree has ", size, " bytes, but ", bytes.size() - 4,
        " follow");
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian(bytes.data() + at));
  replacements_ = bytes.substr(4 + size);
  replacements_ += '\0';
}

const char* CharacterMap::find(std::string_view text) const {
  std::uint32_t node = offset_of(units_[0]);
  for (const char c : text) {
    if (c == '\0') return nullptr;
    node ^= static_cast<unsigned char>(c);
    if (node >= units_.size() || label_of(units_[node]) != static_cast<unsigned char>(c)) return nullptr;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if ((unit >> 8 & 1) == 0) continue;
    check(node < units_.size(), "normalizer.precompiled_charsmap is damaged");
    const std::uint32_t value = units_[node] & 0x7FFFFFFF;
    check(value < replacements_.size(), "normalizer.precompiled_charsmap is damaged");
    return replacements_.c_str() + value;
  }
  return nullptr;
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string result;
  while (!text.empty()) {
    std::string_view cluster = text.substr(0, unicode::cluster_length(text));
    text.remove_prefix(cluster.size());
    if (const char* whole = cluster.size() < 6 ? find(cluster) : nullptr) {
      result += whole;
      continue;
    }
    while (!cluster.empty()) {
      const std::string_view character =
          cluster.substr(0, static_cast<std::size_t>(unicode::decode(cluster, 0).length));
      if (const char* one = find(character))
        result += one;
      else
        result += character;
      cluster.remove_prefix(character.size());
    }
  }
  return result;
}

}  // namespace heed
