#include "heed/apps/tasks/pair_tokens.h"

#include <unordered_set>

#include "heed/base/unicode.h"
#include "heed/data/tokenizer_parts.h"

namespace heed {
namespace {

std::string with_space(std::string_view word) {
  return concat_text(' ', word);
}

}  // namespace

std::string PairTokenizer::spaced(std::string_view text) {
  std::string words;
  for (const std::string_view word : split_at_punctuation(text)) words += with_space(word);
  return words;
}

TokenPair PairTokenizer::operator()(std::string_view first, std::string_view second) {
  const std::vector<Word> of_first = words_of(first), of_second = words_of(second);
  return {matched(of_first, of_second, true), matched(of_second, of_first, !is_joint_)};
}

std::vector<PairTokenizer::Word> PairTokenizer::words_of(std::string_view text) const {
  std::vector<Word> words;
  for (const std::string_view word : split_at_punctuation(text))
    words.push_back(
        {unicode::lower_case(word, unicode::FinalSigma::medial), tokenizer().encode(with_space(word))});
  return words;
}

MatchedTokens PairTokenizer::matched(const std::vector<Word>& words, const std::vector<Word>& others,
                                     bool begins) {
  std::unordered_set<std::string_view> there;
  for (const Word& other : others) there.insert(other.lower);
  MatchedTokens text;
  if (begins) text.tokens = bounded_.begin();
  text.matches.resize(text.tokens.size(), 0);
  for (const Word& word : words) {
    text.tokens.insert(text.tokens.end(), word.tokens.begin(), word.tokens.end());
    text.matches.resize(text.tokens.size(), there.contains(word.lower) ? kind_of_match(word) : 0);
  }
  text.tokens.push_back(tokenizer().id_of("</s>"));
  text.tokens = bounded_.bounded(std::move(text.tokens));
  text.matches.resize(text.tokens.size(), 0);
  text.matches.back() = 0;  // the end mark
  return text;
}

std::int32_t PairTokenizer::kind_of_match(const Word& word) const {
  constexpr std::int32_t others = 4 + 256;  // ids that marks and bytes may take before the first word
  if (word.tokens.size() != 1 || word.tokens[0] == tokenizer().find("<unk>")) return 4;
  const std::int32_t rank = word.tokens[0] - others;
  return rank < 32 ? 1 : rank < 256 ? 2 : rank < 2048 ? 3 : 4;
}

}  // namespace heed
