#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "heed/core/error.h"

// Arithmetic on sizes that come from settings, files and shapes: an Error where plain arithmetic would overflow.

namespace heed {

/// a * b for sizes that are not negative. Throws an Error that names `what` and both numbers when one is
/// negative or the product does not fit.
inline std::int64_t checked_product(std::string_view what, std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  check(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product), what, ": ", a, " times ", b,
        " is no size: it must not be negative and at most ", std::numeric_limits<std::int64_t>::max());
  return product;
}
template <class... Rest>
std::int64_t checked_product(std::string_view what, std::int64_t a, std::int64_t b, std::int64_t c,
                             Rest... rest) {
  return checked_product(what, checked_product(what, a, b), c, rest...);
}

/// a + b, likewise.
inline std::int64_t checked_sum(std::string_view what, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  check(a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, &sum), what, ": ", a, " plus ", b,
        " is no size: it must not be negative and at most ", std::numeric_limits<std::int64_t>::max());
  return sum;
}

/// a / b rounded up, for a >= 0 and b > 0; never overflows.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// A size that must lie in [low, high]; throws an Error that names `what` and the value otherwise. Returns it.
inline std::int64_t checked_range(std::string_view what, std::int64_t value, std::int64_t low,
                                  std::int64_t high) {
  check(value >= low && value <= high, what, " is ", value, "; it must be ", low, " to ", high);
  return value;
}

}  // namespace heed
