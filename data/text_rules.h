#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// SentencePiece's table of what becomes of characters ("precompiled_charsmap"): a tree of byte strings, each
/// with its replacement. The tree is a double array (Yata et al., "darts-clone").
class CharacterMap {
 public:
  /// `base64` is the table as a tokenizer.json file has it; throws Error for one that is damaged.
  explicit CharacterMap(std::string_view base64);
  /// Hugging Face's rule: a cluster of less than 6 bytes (what a reader takes for one character) that begins
  /// with a string of the table is replaced as a whole; of all others each character by itself.
  std::string apply(std::string_view text) const;

 private:
  /// The replacement of the shortest string of the table that `text` begins with, or null.
  const char* find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a zero
};

// What a tokenizer.json file says of texts before and behind the model, as functions: each part that can be
// followed exactly, given as JSON. All others throw an Error that names them.

/// Changes a text before it is cut ("normalizer").
using TextRule = std::function<std::string(std::string_view)>;
std::vector<TextRule> read_normalizer(std::string_view part);

/// A stretch of text on its way to the model.
struct Piece {
  std::string text;
  bool at_start = false;  ///< it begins where the whole text does
};
/// Cuts each piece into pieces ("pre_tokenizer").
using WordRule = std::function<void(const Piece&, std::vector<Piece>&)>;
std::vector<WordRule> read_pre_tokenizer(std::string_view part);

/// Changes the texts of tokens that are to become text again ("decoder").
using TokenRule = std::function<void(std::vector<std::string>&)>;
std::vector<TokenRule> read_decoder(std::string_view part);

}  // namespace heed
