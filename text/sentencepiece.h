#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// A Unigram model file of SentencePiece (Kudo and Richardson 2018, arXiv 1808.06226), reduced to
/// the parts of sentencepiece_model.proto that affect tokenization.
struct SentencePieceModel {
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    double score = 0;  ///< log probability
    Kind kind = Kind::normal;
  };
  std::vector<Piece> pieces;
  std::string normaliser;     ///< the rule behind the map: nmt_nfkc or nmt_nfkc_cf
  std::string character_map;  ///< "precompiled_charsmap", bytes; empty: characters are unchanged
};

/// Reads a SentencePiece model file. Throws Error with `origin` and the reason: it is damaged, is
/// not a Unigram model, or has a setting that tokenizer.json cannot express or heed does not know.
SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& origin);

struct SentencePieceTokenizer {
  std::string json;  ///< the text of a tokenizer.json file
  /// Pieces of the model that have no token and were left out.
  std::vector<std::string> without_id;
};

/// Returns the tokenizer of a model whose pieces get their ids from `tokens`, which may also
/// contain the pieces of another model: Marian's published translators have one model per language
/// and one list of ids, vocab.json.
///
/// Tokens that only the other language has are spelled with a leading U+0001, which no normalised
/// text contains, so they are decoded but never encoded. Single characters are an exception and
/// keep their spelling, because Marian looks up unknown text in the list. (Marian takes a run of
/// such characters for one unknown; here each one is looked up.) Tokens like ">>deu<<" are matched
/// in the text as they are. Throws Error if `tokens` lack "</s>" or "<unk>".
SentencePieceTokenizer sentencepiece_tokenizer(const SentencePieceModel& model,
                                               const std::vector<std::string>& tokens);

}  // namespace heed
