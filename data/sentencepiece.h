#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// A Unigram model file of SentencePiece (Kudo and Richardson 2018, arXiv 1808.06226), reduced to what
/// splits texts: parts of the messages in its sentencepiece_model.proto.
struct SentencePieceModel {
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    double score = 0;  ///< log probability
    Kind kind = Kind::normal;
  };
  std::vector<Piece> pieces;
  std::string normaliser;     ///< the name of what made the map: nmt_nfkc or nmt_nfkc_cf
  std::string character_map;  ///< "precompiled_charsmap", bytes; empty: characters are unchanged
};

/// Reads such a file. Throws Error with `origin` and the reason: it is damaged, not a Unigram model, or has
/// a setting that tokenizer.json cannot express, or one that heed does not know.
SentencePieceModel read_sentencepiece(std::string_view bytes, const std::string& origin);

struct SentencePieceTokenizer {
  std::string json;  ///< the text of a tokenizer.json file
  /// Pieces of the model that are not among the tokens and were left out.
  std::vector<std::string> without_id;
};

/// The tokenizer of a model whose pieces get their ids from `tokens`, which may also contain those of
/// another model: Marian's published translators have one model per language and one list of ids,
/// vocab.json. Tokens of the other language alone are spelled with a leading U+0001, which no normalised
/// text contains, so they are decoded but never encoded. The exceptions are single characters, which keep
/// their spelling, because Marian looks up in the list what its model does not know. (Marian takes a run of
/// such characters for one unknown; here each one is looked up.) Tokens like ">>deu<<" are matched in the
/// text as they are. Throws Error when `tokens` lack "</s>" or "<unk>".
SentencePieceTokenizer sentencepiece_tokenizer(const SentencePieceModel& model,
                                               const std::vector<std::string>& tokens);

}  // namespace heed
