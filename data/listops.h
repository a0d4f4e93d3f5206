#pragma once

#include <cstdint>

#include "heed/data/labelled_text.h"

namespace heed {

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

}  // namespace heed
