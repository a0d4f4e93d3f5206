#pragma once

#include <cstdint>

#include "heed/core/random.h"
#include "heed/core/tensor.h"

namespace heed {

/// Draws the initial values of parameters. Every call takes the next stream of the seed, so a model that is
/// built again in the same order has the same parameters. Streams are apart from those of training steps.
class Initialiser {
 public:
  explicit Initialiser(std::uint64_t seed) : key_{seed, initial_step, 0} {}

  /// U(-a, a) with a = gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010, eq. 16).
  Tensor xavier_uniform(const Shape& shape, std::int64_t fan_in, std::int64_t fan_out, double gain = 1);
  /// The same for a linear map's weight [out, in].
  Tensor xavier_uniform(std::int64_t out, std::int64_t in, double gain = 1) {
    return xavier_uniform({out, in}, in, out, gain);
  }
  Tensor uniform(const Shape& shape, double low, double high);
  Tensor normal(const Shape& shape, double deviation);
  /// A seed for a part that makes its own Initialiser, such as an attention variant.
  std::uint64_t next_seed();

 private:
  static constexpr std::uint32_t initial_step = 0xffffffff;  // no training run gets that far
  RandomKey next();

  RandomKey key_;
};

}  // namespace heed
