#pragma once

#include <cstdint>

#include "heed/core/random.h"
#include "heed/core/tensor.h"

namespace heed {

class Module;

/// While one lives on a thread, that thread builds models whose parameters and buffers have their shapes but
/// hold next to no memory: every element is the same zero. All checks of constructors happen, and a model of
/// any size is there within milliseconds, to be counted and thrown away; its values mean nothing.
class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  static bool active();
  /// A tensor of this shape over one element. Throws an Error where the number of elements does not fit.
  static Tensor tensor(const Shape& shape, DType dtype = DType::f32);

 private:
  bool previous_;
};

/// What a model holds.
struct ModelCost {
  std::int64_t parameters = 0;  ///< trained elements, those that are shared counted once
  std::int64_t buffers = 0;     ///< elements that are saved with the model but not trained
};
/// Counts with checked arithmetic: an Error where a sum does not fit. Of a model that was built within
/// ShapesOnly as of any other.
ModelCost cost_of(Module& model);

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
  /// The same value everywhere; draws nothing.
  static Tensor constant(const Shape& shape, double value, DType dtype = DType::f32);
  /// A seed for a part that makes its own Initialiser, such as an attention variant.
  std::uint64_t next_seed();

 private:
  static constexpr std::uint32_t initial_step = 0xffffffff;  // no training run gets that far
  RandomKey next();

  RandomKey key_;
};

}  // namespace heed
