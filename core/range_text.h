#pragma once

#include <string>

namespace heed {

/// The largest double below 1: the high end of a range that does not have 1.
inline constexpr double below_one = 0x1.fffffffffffffp-1;

/// "0 to 5", or "at least 0 and below 1" where `high` is below_one. `low_text` and `high_text` are the bounds as the caller
/// writes them.
inline std::string range_text(const std::string& low_text, double high, const std::string& high_text) {
  return high == below_one ? "at least " + low_text + " and below 1" : low_text + " to " + high_text;
}

}  // namespace heed
