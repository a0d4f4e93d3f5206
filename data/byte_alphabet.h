#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heed {

/// The byte alphabet of byte-level BPE (Radford et al., "Language models are unsupervised multitask
/// learners", 2019): each of the 256 bytes is spelled by one visible character, so that any text has a
/// spelling and a vocabulary file stays readable. Printable Latin-1 bytes spell themselves, the others are
/// U+0100 and up, in order ("Ġ" is a space).

/// The character that spells a byte.
char32_t byte_symbol(unsigned char byte);
/// The byte that a character spells, if it belongs to the alphabet.
std::optional<unsigned char> symbol_byte(char32_t symbol);
/// The spelling of bytes, in UTF-8.
std::string spell_bytes(std::string_view bytes);
/// The bytes of a spelling, or nothing when a character is outside the alphabet.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace heed
