#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// A Unigram model file of SentencePiece (Kudo and Richardson 2018, arXiv 1808.06226), as far as it says how
/// texts are cut: parts of the messages of its sentencepiece_model.proto.
struct SentencePieceModel {
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    double score = 0;  ///< logarithm of its probability
    Kind kind = Kind::normal;
  };
  std::vector<Piece> pieces;
  std::string character_map;  ///< "precompiled_charsmap", bytes; empty: characters stay as they are
  bool composes = false;      ///< its map is that of NFKC, which joins letters and marks
};

/// Reads such a file. Throws Error with `origin` and what is wrong: it is damaged, of another kind than
/// Unigram, or has a setting that a tokenizer.json has no part for.
SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& origin);

struct SentencePieceTokenizer {
  std::string json;  ///< the text of a tokenizer.json
  /// Pieces of the model that are not among the tokens, and were left out.
  std::vector<std::string> without_id;
};

/// The tokenizer of a model that gives its pieces the ids of `tokens`, which may hold those of another model,
/// too: Marian's published translators have a model for each language, and one list of ids, vocab.json. What
/// the other language alone has is spelled behind U+0001, which no text has once it is normalised: it is
/// decoded, and never encoded; but for its characters, which stand for themselves where the model knows none,
/// as what Marian reads is looked up in the list (of a run of such characters, which it takes for one
/// unknown, each does here). Tokens like ">>deu<<" are found in the text as they stand. Throws Error when
/// `tokens` lack "</s>" or "<unk>".
SentencePieceTokenizer sentencepiece_tokenizer(const SentencePieceModel& model,
                                               const std::vector<std::string>& tokens);

}  // namespace heed
