#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/names.h"

namespace heed {

/// A token that is matched in the text as it is, before any word splitting. Fields are named as in
/// a tokenizer.json file.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< Matched only where no word character is adjacent.
  bool lstrip = false;       ///< Includes the white space on its left.
  bool rstrip = false;       ///< Includes the white space on its right.
  bool normalized = false;   ///< Matched in the normalised text instead of the raw text.
  bool special = false;      ///< Left out by decode() unless `keep_special`.
};

/// A step that changes the text before tokenization; a tokenizer has a list of them, usually empty.
/// The character tables are those of the installed utf8proc: the newest characters may differ from
/// another program's.
enum class TextStep { nfc, nfd, nfkc, nfkd, lower_case };

/// The names of the steps in a tokenizer.json file.
inline constexpr NameTable<TextStep, 5> text_steps{"normalizer",
                                                   {{{"NFC", TextStep::nfc},
                                                     {"NFD", TextStep::nfd},
                                                     {"NFKC", TextStep::nfkc},
                                                     {"NFKD", TextStep::nfkd},
                                                     {"Lowercase", TextStep::lower_case}}}};

/// Applies the steps in order.
std::string normalize_text(std::string_view text, std::span<const TextStep> steps);

/// Splits a text into words and single punctuation marks, as BERT does ("BertPreTokenizer"),
/// without the white space.
std::vector<std::string_view> split_at_punctuation(std::string_view text);

/// SentencePiece's character replacement table ("precompiled_charsmap"): a tree of byte strings,
/// each with its replacement. The tree is a double array (Yata et al., "darts-clone").
class CharacterMap {
 public:
  /// `base64` is the table as stored in a tokenizer.json file; throws Error if it is damaged.
  explicit CharacterMap(std::string_view base64);
  /// Applies the table as Hugging Face does: a grapheme cluster (what a reader takes for one
  /// character) of less than 6 bytes that begins with a string of the table is replaced as a whole;
  /// in all others the characters are replaced one by one.
  std::string apply(std::string_view text) const;

 private:
  /// Returns the replacement for the shortest string of the table that `text` begins with, or null.
  const char* find(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a zero
};

// The text processing of a tokenizer.json file before and after the model, as functions. Each
// parses its part of the JSON. A part that cannot be reproduced exactly throws an Error that names
// it.

/// A change to a text before it is split ("normalizer").
using TextRule = std::function<std::string(std::string_view)>;
std::vector<TextRule> read_normalizer(std::string_view part);

/// A stretch of text on its way to the model.
struct Piece {
  std::string text;
  std::size_t first = 0;  ///< how many bytes stem from the first character of the whole text
};
/// A function that splits each piece into pieces ("pre_tokenizer").
using WordRule = std::function<void(const Piece&, std::vector<Piece>&)>;
std::vector<WordRule> read_pre_tokenizer(std::string_view part);

/// A change to the texts of tokens before they are joined ("decoder").
using TokenRule = std::function<void(std::vector<std::string>&)>;
std::vector<TokenRule> read_decoder(std::string_view part);

}  // namespace heed
