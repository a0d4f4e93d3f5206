#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// A sparse vector of length 1: `values` at `ids`, each of which occurs once.
struct TextFeatures {
  Tokens ids;
  std::vector<float> values;
};

/// Features of a text for a linear classifier, hashed to 0 .. count - 1 (Weinberger et al. 2009, arXiv
/// 0902.2206): its words and marks of punctuation in lower case, and as they stand where they have capitals;
/// pairs of words that follow each other; and runs of 1 to 5 characters within a word, its ends counting as
/// characters. One that occurs n times has 1 + ln n before the vector is scaled to length 1. Words end at
/// white space and punctuation. Of longer texts the first 65,536 bytes are read.
TextFeatures text_features(std::string_view text, std::int64_t count);

/// The same of a pair: every feature of either text, told apart by which of the texts have it, each once.
/// Behind them stand six numbers: the shares of one text's words, and of all its features, that the other
/// has, too, in quarters; and log2(1 + n) of the words that both have, and of the difference of their counts.
/// Each lies between the features of two whole numbers, with values that sum to 1.
TextFeatures pair_features(std::string_view first, std::string_view second, std::int64_t count);

}  // namespace heed
