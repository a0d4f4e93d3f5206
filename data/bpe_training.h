#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/data/bpe_model.h"
#include "heed/data/word_counts.h"

namespace heed {

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
/// (each behind the beginnings that its merges pass through). A run of other bytes is "<unk>", where that is among the
/// special tokens. Throws Error when a text is not UTF-8, or
/// when all are empty.
BpeModel character_vocabulary(std::span<const std::string> texts,
                              const std::vector<std::string>& special_tokens);

}  // namespace heed
