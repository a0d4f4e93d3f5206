#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/data/token_models.h"

namespace heed {

// --- the byte alphabet -------------------------------------------------------------------------------------

/// The byte alphabet of byte-level BPE (Radford et al., "Language models are unsupervised multitask
/// learners", 2019): each of the 256 bytes is spelled by one visible character, so that any text has a
/// spelling and a vocabulary file stays readable. Printable Latin-1 bytes spell themselves, the others are
/// U+0100 and up, in order ("Ġ" is a space).

/// The character that spells a byte.
char32_t byte_symbol(unsigned char byte);
/// The byte that a character spells, if it belongs to the alphabet.
std::optional<unsigned char> symbol_byte(char32_t symbol);
/// The spelling of bytes, in UTF-8.
std::string spell_bytes(std::string_view bytes);
/// The bytes of a spelling, or nothing when a character is outside the alphabet.
std::optional<std::string> unspell_bytes(std::string_view spelling);

// --- the model ---------------------------------------------------------------------------------------------

/// The settings of a BPE model beside its vocabulary and merges, named as in a tokenizer.json file.
struct BpeOptions {
  /// Stands for bytes without a token; without it such bytes are left out.
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       ///< A run of such bytes gives one unk_token, not one each.
  bool ignore_merges = false;  ///< A word that is a token by itself is taken whole.
};

/// Two neighbouring symbols, by id.
using SymbolPair = std::pair<std::int32_t, std::int32_t>;
/// Mixes the bits, so that a vocabulary made for it cannot put all pairs into one bucket.
struct SymbolPairHash {
  std::size_t operator()(const SymbolPair& pair) const {
    std::uint64_t key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair.first)) << 32) |
                        static_cast<std::uint32_t>(pair.second);
    key = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15ull;
    return static_cast<std::size_t>(key ^ (key >> 29));
  }
};

/// Byte-pair encoding of single words (Sennrich et al., 2016, arXiv 1508.07909) over the byte alphabet.
class BpeModel : public TokenVocabulary {
 public:
  using Pair = SymbolPair;

  /// `tokens` are the spellings by id, all different; `merges` are pairs of ids, the strongest first. Throws
  /// Error when a merge names an id that does not exist or gives a token that is not in the vocabulary.
  BpeModel(std::vector<std::string> tokens, std::vector<Pair> merges, BpeOptions options);

  /// Appends the ids of one word, given as raw bytes.
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
  /// The place of a pair, or the free one where it would stand.
  std::size_t place_of(const Pair& pair) const;
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  std::vector<std::int32_t> initial_symbols(std::string_view word) const;

  std::vector<Pair> merges_;
  BpeOptions options_;
  std::vector<MergePlace> merge_places_;      // open addressing: a power of two, half of them free
  std::array<std::int32_t, 256> byte_ids_{};  // -1: the byte has no token
  std::int32_t unknown_ = -1;
};

struct BpeTraining {
  std::int64_t vocabulary_size = 8000;
  /// Pairs that are rarer are not merged, even if the vocabulary stays smaller.
  std::int64_t min_frequency = 2;
  std::vector<std::string> special_tokens;  ///< They take the first ids, in this order; the 256 bytes follow.
};

/// Learns the merges: the most frequent pair of neighbouring symbols becomes a new token, again and again
/// (Sennrich et al., 2016, algorithm 1). Of pairs equally frequent the one with the smaller ids goes first,
/// so the result depends on the counts alone. Throws Error when the vocabulary cannot hold the special tokens
/// and 256 bytes.
BpeModel train_bpe(const WordCounts& words, const BpeTraining& options);

/// A BPE model whose merges put the bytes of each character of the texts together, and nothing else. The ids
/// are: the special tokens, the bytes that occur, then the characters of more than one byte by code point
/// (each behind the beginnings that its merges pass through). A run of other bytes is "<unk>", where that is
/// among the special tokens. Throws Error when a text is not UTF-8, or when all are empty.
BpeModel character_vocabulary(std::span<const std::string> texts,
                              const std::vector<std::string>& special_tokens);

}  // namespace heed
