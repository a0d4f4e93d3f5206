#include "heed/data/word_model.h"

#include <algorithm>
#include <unordered_set>

#include "heed/core/error.h"

namespace heed {

WordModel::WordModel(std::vector<std::string> tokens, const std::string& unknown)
    : TokenVocabulary(std::move(tokens)), unknown_(id_of(unknown, "unk_token")) {}

void WordModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  ids.push_back(find(word).value_or(unknown_));
}

WordModel frequent_words(const WordCounts& words, const WordTraining& options) {
  std::vector<std::string> tokens = options.first_tokens;
  check(static_cast<std::int64_t>(tokens.size()) < options.vocabulary_size, "a vocabulary of ",
        options.vocabulary_size, " is too small: the special tokens alone are ", tokens.size());
  const std::unordered_set<std::string> first(tokens.begin(), tokens.end());
  std::vector<std::pair<std::int64_t, std::string>> ranked;  // the more frequent, the smaller
  for (const auto& [word, count] : words)
    if (count >= options.min_frequency && !first.contains(word)) ranked.emplace_back(-count, word);
  std::sort(ranked.begin(), ranked.end());
  for (auto& [count, word] : ranked) {
    if (static_cast<std::int64_t>(tokens.size()) == options.vocabulary_size) break;
    tokens.push_back(std::move(word));
  }
  return {std::move(tokens), options.unknown};
}

}  // namespace heed
