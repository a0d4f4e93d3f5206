#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// UTF-8 and the few Unicode properties that text processing needs; the tables are utf8proc's.
namespace heed::unicode {

/// One step through a text. An ill-formed sequence has `valid` false and the length of its longest
/// well-formed beginning (at least 1), the unit that one U+FFFD replaces (Unicode 15, section 3.9).
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
/// The text made safe for a terminal. Control characters below U+0020 (including line ends and tabs) and
/// the bytes of ill-formed sequences appear as `\x1b`; other control characters, line separators and marks
/// that change the text direction as `\u009b`. Dumped JSON keeps its meaning.
std::string printable(std::string_view text);
/// The same, but line ends and tabs stay.
std::string printable_lines(std::string_view text);
/// printable() for one line of a message; a text of more than 4,000 bytes is reduced to its beginning and
/// end.
std::string message_line(std::string_view text);

/// The longest beginning of a text, in whole characters, that has at most `most_bytes` bytes.
std::string_view beginning(std::string_view text, std::size_t most_bytes);
/// The same for messages, with an ellipsis where text was left out.
std::string shortened(std::string_view text, std::size_t most_bytes);
/// How many columns of a terminal a text takes: two for a wide character, none for a combining mark.
std::size_t columns(std::string_view text);

bool is_letter(char32_t value);  ///< General category L*.
bool is_number(char32_t value);  ///< General category N*.
bool is_punctuation(
    char32_t value);  ///< General category P*, and the other printable ASCII that is no letter or digit.
bool is_strict_punctuation(char32_t value);  ///< General category P*.
bool is_symbol(char32_t value);              ///< General category S*.
bool is_control(char32_t value);             ///< General category Cc, Cf or Co.
bool is_mark(char32_t value);                ///< General category M*.
bool is_nonspacing_mark(char32_t value);     ///< General category Mn.
bool is_space(char32_t value);               ///< Property White_Space.
/// Stays with the character before it where words end (UAX #29, rule WB4): a mark such as a vowel sign, a
/// joiner or another format character, but not U+200B, which stands between words.
bool stays_with_previous(char32_t value);
/// `\w` of UTS 18: letters (enclosed ones, too), marks, decimal and letter numbers, connectors, joiners.
bool is_word(char32_t value);

/// What matters of a letter's script where words are counted.
enum class Script {
  latin,
  han,       ///< Chinese characters, and the signs that spell them
  unspaced,  ///< Others that stand without spaces between words: kana, Thai, Khmer, ...
  other,
};
Script script_of(char32_t letter);

/// How a capital sigma at the end of a word is lowered.
enum class FinalSigma {
  medial,  ///< U+03C3 everywhere: each character by itself.
  final,   ///< U+03C2 at the end of a word (Unicode 15, table 3-17), as Python's str.lower does.
};
/// The text in lower case, with the full mapping of U+0130. Ill-formed bytes stay as they are.
std::string lower_case(std::string_view text, FinalSigma rule);

/// The length in bytes of the first grapheme cluster (UAX #29: what a reader sees as one character) of a
/// text that is not empty.
std::size_t cluster_length(std::string_view text);

enum class Form { nfc, nfd, nfkc, nfkd };
/// A normalisation form of UAX #15. Ill-formed bytes stay as they are, the text between them is normalised.
std::string normalize(std::string_view text, Form form);

}  // namespace heed::unicode
