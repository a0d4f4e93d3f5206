#include "heed/core/shape.h"

namespace heed {

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  for (int i = 1; i <= shorter.rank(); ++i) {
    std::int64_t& extent = result[longer.rank() - i];
    std::int64_t other = shorter[shorter.rank() - i];
    check(extent == other || extent == 1 || other == 1, op, ": shapes ", a, " and ", b, " do not broadcast");
    if (extent == 1) extent = other;
  }
  return result;
}

}  // namespace heed
