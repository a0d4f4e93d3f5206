#pragma once

#include <cstdint>

#include "heed/data/labelled_text.h"

namespace heed {

/// Questions about people with sentences that may answer them, made by rule, to see whether a model learns to match pairs:
///
///   where is emma ?    emma waits in the garden .     1
///   where is emma ?    emma eats some bread .         0   of the same person, but no place
///   where is emma ?    oscar waits in the kitchen .   0   a place, but of somebody else
///
/// Each question ("where is", "what does ... eat", "how old is") has five answers, up to two of them right; there are
/// questions without a right answer. A pure function of the arguments. Throws Error for a count below 1 or above
/// a million.
LabelledText draw_answer_pairs(std::uint64_t seed, std::int64_t questions);

}  // namespace heed
