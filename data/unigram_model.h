#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/string_tree.h"
#include "heed/data/token_vocabulary.h"

namespace heed {

/// The settings of a Unigram model beside its vocabulary, named as in a tokenizer.json file.
struct UnigramOptions {
  std::optional<std::int32_t> unk_id;
  bool byte_fallback = false;  ///< what is unknown becomes its bytes "<0x41>", where the vocabulary has them
};

/// The most probable sequence of tokens whose texts make the word (Kudo 2018, arXiv 1804.10959), found by Viterbi's
/// algorithm; a character that no token gives costs 10 more than the rarest token, and a run of such is one unknown.
/// Linear in the text, times the tokens that begin at a place.
class UnigramModel : public TokenVocabulary {
 public:
  /// How much an unknown character is behind the rarest token; SentencePiece's.
  static constexpr double unknown_penalty = 10;

  /// `scores` are logarithms of probabilities by id. Throws Error when they do not fit the tokens, when one is not
  /// finite, and for an unknown token outside the vocabulary.
  UnigramModel(std::vector<std::string> tokens, std::vector<double> scores, UnigramOptions options);
  /// Throws Error for what is unknown where the model has no unknown token.
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const std::vector<double>& scores() const { return scores_; }
  const UnigramOptions& options() const { return options_; }

 private:
  void append_piece(std::string_view piece, std::vector<std::int32_t>& ids) const;

  std::vector<double> scores_;
  UnigramOptions options_;
  double unknown_score_ = 0;
  StringTree tree_;
};

}  // namespace heed
