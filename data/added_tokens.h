#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// A token that is found in the text as it stands, before any word splitting; named as in a tokenizer.json
/// file.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< Found only where no word character touches it.
  bool lstrip = false;       ///< Takes the white space on its left with it.
  bool rstrip = false;       ///< Takes the white space on its right with it.
  bool normalized = false;   ///< Looked for in the normalised text instead of the raw text.
  bool special = false;      ///< Left out by decode() unless asked for.
};

/// A stretch of text, with the id of the token it is, if it is one.
struct Segment {
  std::string_view text;
  std::optional<std::int32_t> id;
};

/// Finds a set of strings in a text: at each place the longest that begins there, left to right, without
/// overlap.
class TokenMatcher {
 public:
  /// Adds a token to look for; `pattern` is what it looks like in the text (its content, or that normalised).
  void add(AddedToken token, std::string pattern);
  /// Cuts the text at its tokens. Parts without text are left out.
  std::vector<Segment> split(std::string_view text) const;

 private:
  struct Pattern {
    std::string text;
    AddedToken token;
  };
  const Pattern* longest_at(std::string_view text, std::size_t at) const;

  std::array<std::vector<Pattern>, 256> patterns_by_first_byte_;  // longest first
  bool empty_ = true;
};

}  // namespace heed
