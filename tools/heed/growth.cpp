#include "growth.h"

#include <algorithm>
#include <cmath>

#include "heed/base/error.h"

namespace heed::programs {

std::optional<double> growth_exponent(std::span<const CostAtLength> points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [length, cost] : points) {
    check(length > 0 && cost > 0, "growth_exponent: length ", length, " and cost ", cost,
          " must be positive to have logarithms");
    const double log_length = std::log(length), log_cost = std::log(cost);
    n += 1;
    x += log_length;
    y += log_cost;
    xx += log_length * log_length;
    xy += log_length * log_cost;
  }
  const auto differs = [&](const CostAtLength& point) { return point.length != points.front().length; };
  if (std::none_of(points.begin(), points.end(), differs)) return {};
  return (n * xy - x * y) / (n * xx - x * x);
}

std::optional<double> expected_cost(std::span<const CostAtLength> points, double length) {
  if (points.size() < 2) return {};
  const CostAtLength &first = points[points.size() - 2], &last = points.back();
  check(first.length < last.length, "expected_cost: lengths must ascend, got ", first.length, " and ",
        last.length);
  // cost / length = a + b length is a straight line.
  const double slope = (last.cost / last.length - first.cost / first.length) / (last.length - first.length);
  const double b = std::clamp(slope, 0.0, last.cost / (last.length * last.length));
  const double a = last.cost / last.length - b * last.length;
  return a * length + b * length * length;
}

}  // namespace heed::programs
