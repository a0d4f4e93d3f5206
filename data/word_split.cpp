#include "heed/data/word_split.h"

#include <array>

#include "heed/core/unicode.h"

namespace heed {
namespace {

enum class Kind { end, space, letter, number, other };

struct Character {
  Kind kind = Kind::end;
  std::size_t length = 0;
};

Character character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const unicode::CodePoint c = unicode::decode(text, at);
  const auto length = static_cast<std::size_t>(c.length);
  if (!c.valid) return {Kind::other, length};
  if (unicode::is_space(c.value)) return {Kind::space, length};
  if (unicode::is_letter(c.value)) return {Kind::letter, length};
  if (unicode::is_number(c.value)) return {Kind::number, length};
  return {Kind::other, length};
}

std::size_t end_of_run(std::string_view text, std::size_t at, Kind kind) {
  for (Character c = character_at(text, at); c.kind == kind; c = character_at(text, at)) at += c.length;
  return at;
}

/// Length of an English contraction at the start of the text, or 0.
std::size_t contraction_length(std::string_view text) {
  static constexpr std::array<std::string_view, 7> contractions = {"'s", "'t",  "'re", "'ve",
                                                                   "'m", "'ll", "'d"};
  for (const std::string_view contraction : contractions)
    if (text.starts_with(contraction)) return contraction.size();
  return 0;
}

/// End of a run of white space. The last character of a run before a word is left to the word: a U+0020 joins
/// it, any other space then stands alone.
std::size_t end_of_space(std::string_view text, std::size_t at) {
  std::size_t last = at, end = at;
  for (Character c = character_at(text, end); c.kind == Kind::space; c = character_at(text, end)) {
    last = end;
    end += c.length;
  }
  return end < text.size() && last > at ? last : end;
}

std::size_t end_of_word(std::string_view text, std::size_t at) {
  if (const std::size_t length = contraction_length(text.substr(at))) return at + length;
  const std::size_t body = text[at] == ' ' ? at + 1 : at;
  const Kind kind = character_at(text, body).kind;
  if (kind == Kind::space || kind == Kind::end) return end_of_space(text, at);
  return end_of_run(text, body, kind);
}

}  // namespace

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_word(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace heed
