#pragma once

#include <optional>
#include <span>

// How a cost grows with the length of a sequence.

namespace heed::programs {

/// What something cost at one length.
struct CostAtLength {
  double length = 0, cost = 0;
};

/// The exponent p of cost = c length^p that fits best: least squares of log cost over log length. Nothing
/// when there are fewer than two different lengths. Throws an Error unless all numbers are positive.
std::optional<double> growth_exponent(std::span<const CostAtLength> points);

/// The cost to expect at a longer length, from cost = a length + b length^2 through the last two points (the
/// squares of attention hide behind the projections as long as a sequence is short); a and b are not
/// negative. Nothing with fewer than two points; their lengths ascend.
std::optional<double> expected_cost(std::span<const CostAtLength> points, double length);

}  // namespace heed::programs
