#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// UTF-8 and the few Unicode properties that text processing needs; the tables are utf8proc's.
namespace heed::unicode {

/// A decoded character. For an ill-formed sequence, `valid` is false and `length` is that of its
/// longest well-formed beginning (at least 1), the unit that one U+FFFD replaces (Unicode 15,
/// section 3.9).
struct CodePoint {
  char32_t value = 0;
  int length = 1;
  bool valid = false;
};

/// The character that starts at byte `at`, which must lie inside the text.
CodePoint decode(std::string_view text, std::size_t at);
/// Appends the UTF-8 form of a scalar value.
void append(std::string& text, char32_t value);
/// Offset of the first byte that is not well-formed UTF-8, or npos.
std::size_t find_invalid(std::string_view text);
/// The text with every ill-formed sequence replaced by U+FFFD.
std::string replace_invalid(std::string_view text);
/// Makes a text safe for a terminal. Control characters below U+0020 (including line ends and tabs)
/// and the bytes of ill-formed sequences appear as `\x1b`; other control characters, line
/// separators and marks that change the text direction as `\u009b`. Dumped JSON keeps its meaning.
std::string printable(std::string_view text);
/// Like printable(), but keeps line ends and tabs.
std::string printable_lines(std::string_view text);
/// printable() for one line of a message; a text of more than 4,000 bytes is reduced to its
/// beginning and end.
std::string message_line(std::string_view text);

/// The longest beginning of a text, in whole characters, that has at most `most_bytes` bytes.
std::string_view beginning(std::string_view text, std::size_t most_bytes);
/// Like beginning(), for messages: an ellipsis marks omitted text.
std::string shortened(std::string_view text, std::size_t most_bytes);
/// Returns the number of terminal columns of a text: two for a wide character, none for a combining
/// mark.
std::size_t columns(std::string_view text);

bool is_letter(char32_t value);              ///< General category L*.
bool is_number(char32_t value);              ///< General category N*.
bool is_punctuation(char32_t value);         ///< General category P*, or an ASCII symbol.
bool is_strict_punctuation(char32_t value);  ///< General category P*.
bool is_symbol(char32_t value);              ///< General category S*.
bool is_control(char32_t value);             ///< General category Cc, Cf or Co.
bool is_mark(char32_t value);                ///< General category M*.
bool is_nonspacing_mark(char32_t value);     ///< General category Mn.
bool is_space(char32_t value);               ///< Property White_Space.
/// True for characters that stay with the one before them where words end (UAX #29, rule WB4):
/// marks such as vowel signs, joiners and other format characters, but not U+200B, which separates
/// words.
bool stays_with_previous(char32_t value);
/// `\w` of UTS 18: letters (enclosed ones, too), marks, decimal and letter numbers, connectors,
/// joiners.
bool is_word(char32_t value);

/// The script of a letter, as far as counting words needs it.
enum class Script {
  latin,
  han,       ///< Chinese characters, and the signs that spell them
  unspaced,  ///< Others that stand without spaces between words: kana, Thai, Khmer, ...
  other,
};
Script letter_script(char32_t letter);

/// The lower case of a capital sigma at the end of a word.
enum class FinalSigma {
  medial,  ///< U+03C3 everywhere: each character by itself.
  final,   ///< U+03C2 at the end of a word (Unicode 15, table 3-17), as Python's str.lower does.
};
/// The text in lower case, with the full mapping of U+0130. Ill-formed bytes stay as they are.
std::string lower_case(std::string_view text, FinalSigma rule);

/// The length in bytes of the first grapheme cluster (UAX #29: what a reader sees as one character)
/// of a text that is not empty.
std::size_t cluster_length(std::string_view text);

enum class Form { nfc, nfd, nfkc, nfkd };
/// A normalisation form of UAX #15. Ill-formed bytes stay as they are, the text between them is
/// normalised.
std::string normalize(std::string_view text, Form form);

}  // namespace heed::unicode
