#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/data/token_vocabulary.h"
#include "heed/data/word_counts.h"

namespace heed {

/// A vocabulary of whole words ("WordLevel" in a tokenizer.json file): all others are the unknown token.
class WordModel : public TokenVocabulary {
 public:
  /// Throws Error when the unknown token is not in the vocabulary.
  WordModel(std::vector<std::string> tokens, const std::string& unknown);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const std::string& unknown() const { return tokens()[static_cast<std::size_t>(unknown_)]; }

 private:
  std::int32_t unknown_;
};

struct WordTraining {
  std::int64_t vocabulary_size = 8000;    ///< All ids, the first tokens included.
  std::int64_t min_frequency = 2;         ///< Words that are rarer are unknown.
  std::vector<std::string> first_tokens;  ///< They take the first ids, in this order.
  std::string unknown = "<unk>";          ///< One of them.
};

/// The most frequent words, of words equally frequent those that come first by their bytes. Throws Error when the
/// vocabulary cannot hold a single word.
WordModel frequent_words(const WordCounts& words, const WordTraining& options);

}  // namespace heed
