#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

/// What a fuzzer makes of its input byte by byte: numbers and texts from the front; zeros and nothing at its
/// end.
class FuzzChoices {
 public:
  explicit FuzzChoices(std::string_view bytes) : bytes_(bytes) {}
  unsigned below(unsigned bound) {
    const unsigned byte = bytes_.empty() ? 0 : static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(std::min<std::size_t>(bytes_.size(), 1));
    return byte % bound;
  }
  std::string text() {
    static constexpr std::array<const char*, 12> pieces = {"a", "b",      "c", "ab", "<s>", " ",
                                                           "é", "\u0301", "Ġ", "Ã",  "©",   "A"};
    std::string text;
    for (unsigned left = 1 + below(4); left > 0; --left) text += pieces[below(pieces.size())];
    return text;
  }
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

/// An entry of a tokenizer.json's "added_tokens", with flags by the input.
inline nlohmann::json added_token(FuzzChoices& choices, const std::string& content, std::int64_t id) {
  const unsigned flags = choices.below(32);
  return {{"id", id},
          {"content", content},
          {"single_word", (flags & 1) != 0},
          {"lstrip", (flags & 2) != 0},
          {"rstrip", (flags & 4) != 0},
          {"normalized", (flags & 8) != 0},
          {"special", (flags & 16) != 0}};
}
