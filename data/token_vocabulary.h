#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed {

/// A hash of strings that finds a view in a table of strings without making a string of it.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

/// The tokens of a model by id, and the ids of tokens.
class TokenVocabulary {
 public:
  /// `tokens` are the spellings by id, all different; throws Error otherwise.
  explicit TokenVocabulary(std::vector<std::string> tokens);

  const std::vector<std::string>& tokens() const { return tokens_; }
  /// The id of a spelling, if it is in the vocabulary.
  std::optional<std::int32_t> find(std::string_view spelling) const;
  /// The same for a token that a model names, such as its unknown token; `what` says so in the Error.
  std::int32_t id_of(std::string_view spelling, std::string_view what) const;

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;
};

}  // namespace heed
