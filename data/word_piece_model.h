#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/data/string_tree.h"
#include "heed/data/token_vocabulary.h"

namespace heed {

/// The settings of a WordPiece model beside its vocabulary, named as in a tokenizer.json file.
struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";  ///< before tokens that begin inside a word
  std::int64_t max_input_chars_per_word = 100;   ///< a longer word is unknown
};

/// The longest token that begins a word, then the longest that goes on, to its end (Wu et al. 2016, arXiv 1609.08144);
/// a word that cannot be cut so is unknown as a whole. In linear time, as StringTree has it.
class WordPieceModel : public TokenVocabulary {
 public:
  /// Throws Error when the unknown token is not in the vocabulary.
  WordPieceModel(std::vector<std::string> tokens, WordPieceOptions options);
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;
  const WordPieceOptions& options() const { return options_; }

 private:
  WordPieceOptions options_;
  std::int32_t unknown_;
  StringTree first_, next_;  // of tokens as they stand, and of those inside a word without the prefix
  std::vector<std::int32_t> next_ids_;  // of the strings of next_
};

}  // namespace heed
