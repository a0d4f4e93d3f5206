#pragma once

#include <cstdint>

namespace heed::cpu {

/// The first position i in [from, count) where x[i] <= bound is false: x[i] is larger, or one of the two is no number.
/// `count` where there is none. T is float, double or std::int32_t.
template <class T>
std::int64_t find_above(const T* x, std::int64_t from, std::int64_t count, T bound);

}  // namespace heed::cpu
