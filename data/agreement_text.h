#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

/// English sentences made by rule, to see whether a language model has learned a rule and not only letters.
/// There are two kinds, three of the first for one of the second:
/// - the verb agrees with its noun in number, whatever stands between the two:
///   "every small cat that these dogs follow sleeps.", "the dogs near a goat that..." never nests deeper;
/// - a sum of animals: "two cats and one horse are three animals.", up to nine of each.

/// One sentence without line end; a pure function of (seed, index).
std::string agreement_sentence(std::uint64_t seed, std::uint32_t index);
/// Whether a line is a sentence that agreement_sentence could make: words, order, agreement and sums.
bool follows_agreement(std::string_view sentence);

/// Sentences to learn from and, apart from these, sentences to measure with.
struct AgreementText {
  std::vector<std::string> train, held_out;
};
/// A pure function of its arguments. `held_out` is drawn first, without repeats; no sentence of it is in
/// `train`. Throws Error for counts below 1 or above a million.
AgreementText agreement_text(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

}  // namespace heed
