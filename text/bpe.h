#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/text/token_models.h"

namespace heed {

// --- the byte alphabet
// -------------------------------------------------------------------------------------

/// The byte alphabet of byte-level BPE (Radford et al., "Language models are unsupervised multitask
/// learners", 2019): one visible character for each of the 256 bytes, so that any text has a
/// spelling and a vocabulary file stays readable. Printable Latin-1 bytes are spelled as
/// themselves; the others as U+0100 and up, in order ("Ġ" is a space).

/// Returns the character that spells a byte.
char32_t byte_symbol(unsigned char byte);
/// Returns the byte that a character spells; nothing if it is not in the alphabet.
std::optional<unsigned char> symbol_byte(char32_t symbol);
/// Returns the spelling of bytes, in UTF-8.
std::string spell_bytes(std::string_view bytes);
/// Returns the bytes of a spelling; nothing if a character is outside the alphabet.
std::optional<std::string> unspell_bytes(std::string_view spelling);

// --- the model
// ---------------------------------------------------------------------------------------------

/// The settings of a BPE model besides its vocabulary and merges, named as in a tokenizer.json
/// file.
struct BpeOptions {
  /// The token for bytes, or characters, that have no token; if unset, they are left out.
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       ///< Replaces a run of unknown symbols by a single unk_token.
  bool ignore_merges = false;  ///< A word that is itself a token is not merged.
  bool byte_fallback = false;  ///< Spells unknown characters in bytes such as "<0x41>".
  bool of_characters = false;  ///< Merges characters instead of spelled bytes.
};

/// Two neighbouring symbols, by id.
using SymbolPair = std::pair<std::int32_t, std::int32_t>;
/// A hash of pairs that mixes the bits, so that no crafted vocabulary can put all pairs into one
/// bucket.
struct SymbolPairHash {
  std::size_t operator()(const SymbolPair& pair) const {
    std::uint64_t key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32) |
                        static_cast<std::uint32_t>(pair.second);
    key = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15ull;
    return static_cast<std::size_t>(key ^ (key >> 29));
  }
};

/// Byte-pair encoding of single words (Sennrich et al., 2016, arXiv 1508.07909) over the byte
/// alphabet, or over characters, as in SentencePiece (Kudo and Richardson 2018, arXiv 1808.06226).
class BpeModel : public TokenVocabulary {
 public:
  using Pair = SymbolPair;

  /// Builds the model from `merges`, pairs of ids by decreasing priority. Throws Error if a merge
  /// names an id that does not exist or produces a token that is not in the vocabulary.
  BpeModel(TokenVocabulary vocabulary, std::vector<Pair> merges, BpeOptions options);

  /// Appends the ids of one word, given as raw bytes. Over characters, ill-formed bytes are
  /// unknown.
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  const std::vector<Pair>& merges() const { return merges_; }
  const BpeOptions& options() const { return options_; }

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t result = 0;
  };
  struct MergePlace {
    Pair pair{-1, -1};  // -1: free
    Merge merge;
  };
  /// The place of a pair, or the free place where it would go.
  std::size_t place_of(const Pair& pair) const;
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  std::vector<std::int32_t> initial_symbols(std::string_view word) const;
  std::vector<std::int32_t> initial_characters(std::string_view word) const;

  std::vector<Pair> merges_;
  BpeOptions options_;
  std::vector<MergePlace> merge_places_;      // open addressing: a power of two, half of them free
  std::array<std::int32_t, 256> byte_ids_{};  // -1: the byte has no token
  std::int32_t unknown_ = -1;
};

struct BpeTraining {
  std::int64_t vocabulary_size = 8000;
  /// The minimum count of a pair; rarer pairs are not merged, even if the vocabulary stays smaller.
  std::int64_t min_frequency = 2;
  /// Take the first ids, in this order; the 256 bytes follow.
  std::vector<std::string> special_tokens;
};

/// Learns a BPE model: the most frequent pair of neighbouring symbols becomes a new token,
/// repeatedly (Sennrich et al., 2016, algorithm 1). Ties go to the pair with the smaller ids, so
/// the result depends on the counts alone. Throws Error if the vocabulary cannot hold the special
/// tokens and 256 bytes.
BpeModel train_bpe(const WordCounts& words, const BpeTraining& options);

/// Returns a BPE model that only merges the bytes of each character in the texts. Ids: the special
/// tokens, the bytes that occur, then the characters of more than one byte by code point (each
/// after the prefixes that its merges pass through). A run of other bytes is "<unk>" if that is
/// among the special tokens. Throws Error if a text is not UTF-8, or if all are empty.
BpeModel character_vocabulary(std::span<const std::string> texts,
                              const std::vector<std::string>& special_tokens);

}  // namespace heed
