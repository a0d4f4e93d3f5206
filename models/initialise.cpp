#include "heed/models/initialise.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {

RandomKey Initialiser::next() {
  const RandomKey key = key_;
  ++key_.op;
  return key;
}

Tensor Initialiser::uniform(const Shape& shape, double low, double high) {
  return heed::uniform(shape, low, high, next());
}

Tensor Initialiser::normal(const Shape& shape, double deviation) {
  return heed::normal(shape, 0, deviation, next());
}

Tensor Initialiser::xavier_uniform(const Shape& shape, std::int64_t fan_in, std::int64_t fan_out,
                                   double gain) {
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(fan_in + fan_out));
  return uniform(shape, -bound, bound);
}

std::uint64_t Initialiser::next_seed() {
  const auto words = philox(next(), 0);
  return (static_cast<std::uint64_t>(words[1]) << 32) | words[0];
}

}  // namespace heed
