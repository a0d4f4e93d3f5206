#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

Tensor uniform(const Shape& shape, double low, double high, const RandomKey& key, DType dtype,
               Device device) {
  check(is_floating(dtype), "uniform: needs f32 or f64, got ", dtype);
  const Tensor out = Tensor::empty(shape, dtype, device);
  const double widest =
      dtype == DType::f64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  check(out.count() == 0 || (-widest <= low && low <= high && high <= widest && high - low <= widest),
        "uniform: [", low, ", ", high, ") is not an interval of ", dtype);
  backend_of(device).uniform(key, low, high, out);
  return out;
}

Tensor permutation(std::int64_t count, const RandomKey& key, Device device) {
  check(count >= 0, "permutation: count ", count, " is negative");
  check_positions("permutation", count);
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  // Fisher-Yates shuffle: each position takes one of the elements that are left.
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[(static_cast<std::uint64_t>(random_word(key, i)) * i) >> 32]);
  return Tensor::from(order, {count}, device);
}

Tensor normal(const Shape& shape, double mean, double deviation, const RandomKey& key, DType dtype,
              Device device) {
  check(is_floating(dtype), "normal: needs f32 or f64, got ", dtype);
  const Tensor out = Tensor::empty(shape, dtype, device);
  check(out.count() == 0 || (std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0),
        "normal: mean ", mean, " and deviation ", deviation,
        " must be finite, and the deviation not negative");
  backend_of(device).normal(key, mean, deviation, out);
  return out;
}

}  // namespace heed
