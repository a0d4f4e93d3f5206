#pragma once

#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/apps/data/formats.h"
#include "heed/apps/data/labelled_text.h"
#include "heed/base/error.h"

// Data made by rule, from which tasks learn without files. Each is a pure function of its arguments.

namespace heed {

/// Generated items: training items and held-out items.
template <class Item>
struct MadeParts {
  std::vector<Item> train, held_out;
};

/// Generates items with make(0), make(1), ...: first the held-out items, without repeats, then the training
/// items, none of which is held out. Throws Error unless there are 1 to 1,000,000 `what` for training and 1
/// to `most` held out.
template <class Make>
auto made_parts(std::string_view what, std::int64_t train_count, std::int64_t held_out_count,
                std::int64_t most, const Make& make) {
  constexpr std::int64_t most_to_learn = 1'000'000;
  check(train_count >= 1 && held_out_count >= 1 && train_count <= most_to_learn && held_out_count <= most,
        "1 to ", most_to_learn, ' ', what, " to learn from and 1 to ", most,
        " to measure with can be made, not ", train_count, " and ", held_out_count);
  using Item = decltype(make(0U));
  MadeParts<Item> made;
  std::set<Item> held_out;
  std::uint32_t index = 0;
  while (std::ssize(made.held_out) < held_out_count)
    if (Item item = make(index++); held_out.insert(item).second) made.held_out.push_back(std::move(item));
  while (std::ssize(made.train) < train_count)
    if (Item item = make(index++); !held_out.contains(item)) made.train.push_back(std::move(item));
  return made;
}

/// Returns an English sentence that tests whether a language model has learned a rule rather than just
/// letters; a pure function of (seed, index). There are two kinds, in the ratio 3 : 1:
/// - the verb agrees with its noun in number, whatever comes between the two: "every small cat that these
/// dogs follow sleeps."; deeper nesting, as in "the dogs near a goat that...", does not occur;
/// - a sum of animals: "two cats and one horse are three animals.", up to nine of each.
std::string agreement_sentence(std::uint64_t seed, std::uint32_t index);
/// Whether agreement_sentence could produce this line: words, order, agreement and sums.
bool follows_agreement(std::string_view sentence);

/// Sentences of agreement_sentence() in two parts (see made_parts), a pure function of the
/// arguments. Throws Error for counts below 1 or above a million.
using AgreementText = MadeParts<std::string>;
AgreementText agreement_text(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

/// The rule of ListOps (Nangia and Bowman, 2018) as in the Long Range Arena (Tay et al., arXiv
/// 2011.04006), with the defaults of that benchmark.
struct ListOpsRule {
  /// 1 to 1000: nodes at this depth are digits; the root has depth 1.
  std::int64_t max_depth = 10;
  std::int64_t max_arguments = 10;  ///< 2 to 1000: an operator has 2 to this many arguments
  double operator_share = 0.25;     ///< 0 to 1: among the nodes above the largest depth
  /// From 0; a digit counts 1, an operator 2 (opening and closing).
  std::int64_t longer_than = 500;
  std::int64_t shorter_than = 2000;  ///< up to a million
};

/// Draws `count` distinct expressions such as "[MAX 2 9 [MIN 4 7 ] 0 ]", each labelled with its value, "0" to
/// "9". The operators are MIN, MAX, MED (the median; for an even count the mean of the middle two, truncated
/// to an integer) and SM (the sum modulo 10). A pure function of its arguments; a larger count begins with
/// the same expressions. Throws Error when the rule or the count (up to ten million) is out of range, and
/// when the rule hardly ever yields a new expression.
LabelledText draw_listops(std::uint64_t seed, std::int64_t count, const ListOpsRule& rule = {});

/// Generated news and clicks that test whether a recommender has learned what users like rather than which
/// news items are popular. Each news item has one of eight topics (two in each category), from which two or
/// three words of its title are. Each user likes two topics, and clicks nine in ten shown items of a liked
/// topic and one in thirty of all others. The items shown are recent, so the last impressions show items that
/// no earlier one did.
struct TopicClicks {
  std::vector<News> news;
  std::vector<Impression> impressions;  ///< in order of time, a minute apart
};

/// Generates news and clicks, a pure function of the arguments. Every impression has at least one clicked
/// and one passed item; one history in twenty is empty. Throws Error unless there are 1 to a million.
TopicClicks topic_clicks(std::uint64_t seed, std::int64_t impressions, NewsNames& names);

/// Generated small talk that tests whether a model uses more than the last turn: people say who they are,
/// where they come from and what they look for, and answers refer to exactly that. See made_parts; at most a
/// thousand dialogues are held out.
MadeParts<Dialogue> small_talk(std::uint64_t seed, std::int64_t train_count, std::int64_t held_out_count);

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
