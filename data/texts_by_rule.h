#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/labelled_text.h"
#include "heed/data/mind.h"

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

/// The rule of ListOps (Nangia and Bowman, 2018) in the form of the Long Range Arena (Tay et al., arXiv
/// 2011.04006); the defaults are that benchmark's.
struct ListOpsRule {
  std::int64_t max_depth = 10;       ///< 1 to 1000: where a node is always a digit; the root has depth 1
  std::int64_t max_arguments = 10;   ///< 2 to 1000: an operator has 2 to so many
  double operator_share = 0.25;      ///< 0 to 1: of the nodes above the largest depth
  std::int64_t longer_than = 500;    ///< from 0; a digit counts one, an operator two (it opens and closes)
  std::int64_t shorter_than = 2000;  ///< up to a million
};

/// Draws `count` expressions, no two alike, such as "[MAX 2 9 [MIN 4 7 ] 0 ]", each labelled with its value,
/// "0" to "9": of the operators MIN, MAX, MED (the median; of an even count the mean of the middle two, cut
/// to an integer) and SM (the sum modulo 10). A pure function of its arguments; a larger count begins with
/// the same expressions. Throws Error when the rule or the count (up to ten million) is out of range, and
/// when the rule hardly ever gives another expression.
LabelledText draw_listops(std::uint64_t seed, std::int64_t count, const ListOpsRule& rule = {});

/// News and clicks made by rule, to see whether a recommender has learned what users like and not only which
/// news are popular: each news has one of eight topics, of which its title has two or three words among
/// common ones, and each user likes two topics. A user clicks nine in ten of the news shown of a liked topic
/// and one in thirty of all others. What is shown is new: news come and go with time, so that the last
/// impressions show news that no earlier one did. Categories are four, of two topics each.
struct TopicClicks {
  std::vector<News> news;
  std::vector<Impression> impressions;  ///< in the order of their time, a minute after each other
};

/// A pure function of its arguments. In every impression there is a click and a news that was passed; one
/// history in twenty is empty. Throws Error unless there are 1 to a million impressions.
TopicClicks topic_clicks(std::uint64_t seed, std::int64_t impressions, NewsNames& names);

}  // namespace heed
