#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// SentencePiece's table of what becomes of characters ("precompiled_charsmap"): a tree of byte strings, each with its
/// replacement. The tree is a double array (Yata et al., "darts-clone").
class CharacterMap {
 public:
  /// `base64` is the table as a tokenizer.json file has it; throws Error for one that is damaged.
  explicit CharacterMap(std::string_view base64);
  /// Hugging Face's rule: a cluster of less than 6 bytes (what a reader takes for one character) that begins with a string
  /// of the table is replaced as a whole; of all others each character by itself.
  std::string apply(std::string_view text) const;

 private:
  /// The replacement of the shortest string of the table that `text` begins with, or null.
  const char* find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a zero
};

}  // namespace heed
