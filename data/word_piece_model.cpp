#include "heed/data/word_piece_model.h"

#include "heed/core/error.h"
#include "heed/core/unicode.h"

namespace heed {

WordPieceModel::WordPieceModel(std::vector<std::string> tokens, WordPieceOptions options)
    : TokenVocabulary(std::move(tokens)),
      options_(std::move(options)),
      unknown_(id_of(options_.unk_token, "unk_token")),
      first_({this->tokens().begin(), this->tokens().end()}) {
  std::vector<std::string_view> next;
  for (std::size_t id = 0; id < this->tokens().size(); ++id) {
    const std::string_view token = this->tokens()[id];
    if (!token.starts_with(options_.continuing_subword_prefix)) continue;
    next.push_back(token.substr(options_.continuing_subword_prefix.size()));
    next_ids_.push_back(static_cast<std::int32_t>(id));
  }
  next_ = StringTree(next);
}

void WordPieceModel::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::int64_t characters = 0;
  for (std::size_t at = 0; at < word.size(); ++characters)
    at += static_cast<std::size_t>(unicode::decode(word, at).length);
  const std::size_t start = ids.size();
  bool known = characters <= options_.max_input_chars_per_word;
  std::vector<std::int32_t> first, next;
  if (known && !word.empty()) {
    first_.longest(word, 0, 1, first);
    next_.longest(word, 0, word.size(), next);
  }
  for (std::size_t at = 0; known && at < word.size();) {
    const std::int32_t piece = at == 0 ? first[0] : next[at];
    known = piece >= 0;
    if (!known) break;
    ids.push_back(at == 0 ? piece : next_ids_[static_cast<std::size_t>(piece)]);
    at += (at == 0 ? first_ : next_).length(piece);
  }
  if (known) return;
  ids.resize(start);
  ids.push_back(unknown_);
}

}  // namespace heed
