#include "heed/data/character_vocabulary.h"

#include <array>
#include <set>

#include "heed/core/error.h"
#include "heed/core/unicode.h"
#include "heed/data/byte_alphabet.h"

namespace heed {
namespace {

std::set<char32_t> characters_of(std::span<const std::string> texts) {
  std::set<char32_t> characters;
  for (const std::string& text : texts) {
    for (std::size_t at = 0; at < text.size();) {
      const unicode::CodePoint c = unicode::decode(text, at);
      check(c.valid, "the text of a character tokenizer is not UTF-8 at byte ", at + 1);
      characters.insert(c.value);
      at += static_cast<std::size_t>(c.length);
    }
  }
  return characters;
}

/// Gives out ids in the order of the first mention.
class Vocabulary {
 public:
  std::int32_t add(const std::string& token) {
    const auto [place, added] = ids_.emplace(token, static_cast<std::int32_t>(tokens.size()));
    if (added) tokens.push_back(token);
    is_new = added;
    return place->second;
  }

  std::vector<std::string> tokens;
  bool is_new = false;  // whether the last one was

 private:
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace

BpeModel character_vocabulary(std::span<const std::string> texts,
                              const std::vector<std::string>& special_tokens) {
  const std::set<char32_t> characters = characters_of(texts);
  check(!characters.empty(), "there is no text to take characters from: ", texts.size(), " texts, all empty");
  Vocabulary vocabulary;
  for (const std::string& token : special_tokens) {
    vocabulary.add(token);
    check(!token.empty() && vocabulary.is_new, "special token \"", token, "\" is empty or given twice");
  }
  std::vector<std::string> spelled;  // UTF-8
  std::set<unsigned char> bytes;
  for (const char32_t character : characters) {
    std::string text;
    unicode::append(text, character);
    for (const char byte : text) bytes.insert(static_cast<unsigned char>(byte));
    spelled.push_back(std::move(text));
  }
  const auto id_of = [&](std::string_view text) { return vocabulary.add(spell_bytes(text)); };
  for (const unsigned char byte : bytes) {
    const char text = static_cast<char>(byte);
    id_of({&text, 1});
    check(vocabulary.is_new, "the character '", text, "' is a special token too");
  }
  // A merge begins with the first byte of a character and ends within it, so none reaches across two.
  std::vector<BpeModel::Pair> merges;
  for (const std::string& text : spelled) {
    std::int32_t begun = id_of(std::string_view(text).substr(0, 1));
    for (std::size_t length = 2; length <= text.size(); ++length) {
      const std::int32_t joined = id_of(std::string_view(text).substr(0, length));
      if (vocabulary.is_new) merges.emplace_back(begun, id_of(std::string_view(text).substr(length - 1, 1)));
      begun = joined;
    }
  }
  return {std::move(vocabulary.tokens), std::move(merges), {}};
}

}  // namespace heed
