#include "heed/data/unigram_model.h"

#include <algorithm>
#include <cmath>

#include "heed/core/error.h"
#include "heed/core/unicode.h"

namespace heed {
namespace {

/// The best way to a place of the word: by which token, from where.
struct Step {
  double score = 0;
  std::int32_t token = -1;  // -1: an unknown character
  std::size_t begin = 0;
  bool reached = false;
};

std::string byte_token(char byte) {
  constexpr std::string_view hex = "0123456789ABCDEF";
  const auto number = static_cast<unsigned char>(byte);
  return {'<', '0', 'x', hex[number >> 4], hex[number & 15], '>'};
}

}  // namespace

UnigramModel::UnigramModel(std::vector<std::string> tokens, std::vector<double> scores,
                           UnigramOptions options)
    : TokenVocabulary(std::move(tokens)),
      scores_(std::move(scores)),
      options_(options),
      tree_({this->tokens().begin(), this->tokens().end()}) {
  check(!scores_.empty() && scores_.size() == this->tokens().size(), "the vocabulary has ",
        this->tokens().size(), " tokens and ", scores_.size(),
        " scores; there must be one for each, and one at the least");
  for (std::size_t id = 0; id < scores_.size(); ++id)
    check(std::isfinite(scores_[id]), "the score of token ", id, " is ", scores_[id]);
  const auto count = static_cast<std::int64_t>(scores_.size());
  check(!options_.unk_id || (*options_.unk_id >= 0 && *options_.unk_id < count), "unk_id is ",
        options_.unk_id.value_or(0), ", but ids go from 0 to ", count - 1);
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - unknown_penalty;
}

void UnigramModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::vector<std::int32_t> longest;
  tree_.longest(word, 0, word.size(), longest);
  std::vector<Step> best(word.size() + 1);
  const auto reach = [&](std::size_t begin, std::size_t end, double score, std::int32_t token) {
    const double total = score + best[begin].score;
    if (!best[end].reached || total > best[end].score) best[end] = {total, token, begin, true};
  };
  for (std::size_t at = 0; at < word.size();) {
    const auto length = static_cast<std::size_t>(unicode::decode(word, at).length);
    bool has_character = false;
    for (std::int32_t token = longest[at]; token >= 0; token = tree_.longest_beginning(token)) {
      reach(at, at + tree_.length(token), scores_[static_cast<std::size_t>(token)], token);
      has_character = has_character || tree_.length(token) == length;
    }
    if (!has_character) {
      check(options_.unk_id.has_value(), "\"", word.substr(at, length),
            "\" is in no token, and the tokenizer has no unknown token (unk_id)");
      reach(at, at + length, unknown_score_, *options_.unk_id);
    }
    at += length;
  }
  std::vector<std::string_view> pieces;  // from the last on; unknown ones that follow each other are one
  bool after_unknown = false;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const Step& step = best[end];
    const bool unknown = options_.unk_id && step.token == *options_.unk_id;
    const std::size_t until =
        unknown && after_unknown
            ? static_cast<std::size_t>(pieces.back().data() - word.data()) + pieces.back().size()
            : end;
    if (unknown && after_unknown) pieces.pop_back();
    pieces.push_back(word.substr(step.begin, until - step.begin));
    after_unknown = unknown;
  }
  std::reverse(pieces.begin(), pieces.end());
  for (const std::string_view piece : pieces) append_piece(piece, ids);
}

void UnigramModel::append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (const auto id = find(piece)) return ids.push_back(*id);
  std::vector<std::int32_t> bytes;
  for (std::size_t i = 0; options_.byte_fallback && i < piece.size(); ++i)
    if (const auto id = find(byte_token(piece[i]))) bytes.push_back(*id);
  if (options_.byte_fallback && bytes.size() == piece.size())
    ids.insert(ids.end(), bytes.begin(), bytes.end());
  else
    ids.push_back(options_.unk_id.value_or(0));  // encode_word has checked that there is one
}

}  // namespace heed
