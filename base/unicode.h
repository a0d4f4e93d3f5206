#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// UTF-8 and the few Unicode properties that text processing needs; the tables are utf8proc's.
namespace heed::unicode {

/// One step through a text. An ill-formed sequence comes back with `valid` false and the length
/// of its longest well-formed beginning (at least 1), which is the unit that one U+FFFD stands
/// for (Unicode 15, section 3.9).
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
/// The text as it may be shown on a terminal. Control characters below U+0020 (line ends and tabs too) and
/// the bytes of ill-formed sequences are written as `\x1b`; other control characters, line separators and
/// what changes the direction of text as `\u009b`. JSON as it is dumped stays the same JSON.
std::string printable(std::string_view text);
/// The same, but line ends and tabs stay.
std::string printable_lines(std::string_view text);
/// printable() for a line of a message. Of a text of more than 4,000 bytes, only the beginning and the end.
std::string message_line(std::string_view text);

/// The first characters of a text that have at most so many bytes together.
std::string_view beginning(std::string_view text, std::size_t most_bytes);
/// The same for messages, with an ellipsis where something was left out.
std::string shortened(std::string_view text, std::size_t most_bytes);

bool is_letter(char32_t value);  ///< General category L*.
bool is_number(char32_t value);  ///< General category N*.
bool is_punctuation(
    char32_t value);  ///< General category P*, and the other printable ASCII that is no letter or digit.
bool is_control(char32_t value);          ///< General category Cc, Cf or Co.
bool is_mark(char32_t value);             ///< General category M*.
bool is_nonspacing_mark(char32_t value);  ///< General category Mn.
bool is_space(char32_t value);            ///< Property White_Space.
/// `\w` of UTS 18: letters, marks, decimal and letter numbers, connectors, joiners.
bool is_word(char32_t value);

/// What becomes of a capital sigma at the end of a word.
enum class FinalSigma {
  medial,  ///< U+03C3 everywhere: each character by itself.
  final,   ///< U+03C2 at the end of a word (Unicode 15, table 3-17), as Python's str.lower does.
};
/// The text in lower case, with the full mapping of U+0130. Ill-formed bytes stay as they are.
std::string lower_case(std::string_view text, FinalSigma rule);

/// The bytes of the first cluster (UAX #29: what a reader takes for one character) of a text that is not
/// empty.
std::size_t cluster_length(std::string_view text);

enum class Form { nfc, nfd, nfkc, nfkd };
/// A normalisation form of UAX #15. Ill-formed bytes stay as they are, the text between them is normalised.
std::string normalize(std::string_view text, Form form);

}  // namespace heed::unicode
