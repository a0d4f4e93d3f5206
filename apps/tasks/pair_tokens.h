#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/apps/tasks/data.h"
#include "heed/models/pairs.h"

namespace heed {

/// Turns pairs of texts into what a PairMatcher reads: each text's tokens with the end mark, and for each
/// token whether the word it belongs to stands in the other text, too, in small or capital letters. A word is
/// matched whole, so that names which the vocabulary lacks are found. The kinds of match tell how rare the
/// word is by its place in the vocabulary, which is learned from the frequent to the rare: 1 for about 30
/// words, 2 for 250, 3 for 2000, 4 for others and for words of several tokens.
class PairTokenizer {
 public:
  PairTokenizer(Tokenizer tokenizer, const Settings& settings)
      : bounded_(std::move(tokenizer), settings),
        is_joint_(settings.get<std::string>("model.kind") == "joint") {}

  /// A text as the tokenizer is to learn it: words and marks of punctuation with a space before each.
  static std::string spaced(std::string_view text);

  /// Throws an Error when one of the texts is too long (see BoundedTokenizer).
  TokenPair operator()(std::string_view first, std::string_view second);
  const Tokenizer& tokenizer() const { return bounded_.tokenizer(); }
  std::string take_cut_message() { return bounded_.take_cut_message(); }

 private:
  /// A word with the form by which it is compared.
  struct Word {
    std::string lower;
    Tokens tokens;
  };
  std::vector<Word> words_of(std::string_view text) const;
  MatchedTokens matched(const std::vector<Word>& words, const std::vector<Word>& others, bool begins);
  std::int32_t kind_of_match(const Word& word) const;

  BoundedTokenizer bounded_;
  bool is_joint_;  // a row is the pair, and begins once
};

}  // namespace heed
