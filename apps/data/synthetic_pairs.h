#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heed/apps/data/labelled_text.h"
#include "heed/apps/data/text_file.h"

namespace heed {

/// The end of the range of numbers with words, exclusive.
inline constexpr std::int32_t number_words_end = 1'000'000;

/// Returns the English words of 0 to 999,999 in the American form, without "and": 345 is "three
/// hundred forty-five".
std::string english_number(std::int32_t number);

/// Returns the German words of 0 to 999,999, written as one word as Duden prescribes: units before tens
/// ("einundzwanzig"), "eins" only at the very end ("hunderteins"), otherwise "ein" ("hunderteintausend"). A
/// single hundred or thousand that begins the word has no "ein" ("hundert"); inside the word it is written
/// ("tausendeinhundert").
std::string german_number(std::int32_t number);

/// Numbers for training and, separate from these, held-out numbers.
struct NumberSets {
  std::vector<std::int32_t> train, held_out;
};

/// Draws two disjoint sets, a pure function of its arguments. Every number below 100 is in `train`, so that
/// every word occurs. All others are drawn by length first (3 to 6 digits with equal probability, until a
/// length is used up), so that the few short numbers are not lost among the many long ones, and then by
/// value. One draw in eight ends in zeros, since people ask for round numbers. `held_out` is drawn first.
/// Throws Error when train_count is below 100 or there are not enough numbers.
NumberSets draw_numbers(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

/// Returns the English source and German target of each number.
ParallelText number_words(std::span<const std::int32_t> numbers);

/// Generated short reports, which may use the passive voice and mention others, with headlines, which say
/// who did what to whom: "it rained. near the river the young baker helped the miller. the tall judge
/// slept." and "baker helps miller".
struct Reports {
  ParallelText train, held_out;
};
/// Generates reports. A pure function of its arguments; no held-out report occurs in training.
/// Throws Error for counts below 1 or above a million.
Reports headline_reports(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

/// Generates questions about people, with sentences that may answer them, which test whether a
/// model learns to match pairs:
///
///   where is emma ?    emma waits in the garden .     1
///   where is emma ?    emma eats some bread .         0   the same person, but no place
///   where is emma ?    oscar waits in the kitchen .   0   a place, but another person
///
/// Each question ("where is", "what does ... eat", "how old is") has five answers, of which up to
/// two are right; some questions have no right answer. A pure function of the arguments. Throws
/// Error for a count below 1 or above a million.
LabelledText draw_answer_pairs(std::uint64_t seed, std::int64_t questions);

}  // namespace heed
