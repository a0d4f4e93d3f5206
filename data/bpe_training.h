#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "heed/data/bpe_model.h"

namespace heed {

/// Words (raw bytes) with the number of times that each occurs.
using WordCounts = std::unordered_map<std::string, std::int64_t>;

struct BpeTraining {
  std::int64_t vocabulary_size = 8000;
  std::int64_t min_frequency =
      2;  ///< Pairs that are rarer are not merged, even if the vocabulary stays smaller.
  std::vector<std::string> special_tokens;  ///< They take the first ids, in this order; the 256 bytes follow.
};

/// Learns the merges: the most frequent pair of neighbouring symbols becomes a new token, again and again
/// (Sennrich et al., 2016, algorithm 1). Of pairs equally frequent the one with the smaller ids goes first,
/// so the result depends on the counts alone. Throws Error when the vocabulary cannot hold the special tokens
/// and 256 bytes.
BpeModel train_bpe(const WordCounts& words, const BpeTraining& options);

}  // namespace heed
