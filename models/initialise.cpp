#include "heed/models/initialise.h"

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/core/checked.h"
#include "heed/models/module.h"

namespace heed {
namespace {

thread_local bool shapes_only = false;

}  // namespace

ShapesOnly::ShapesOnly() : previous_(shapes_only) {
  shapes_only = true;
}

ShapesOnly::~ShapesOnly() {
  shapes_only = previous_;
}

bool ShapesOnly::active() {
  return shapes_only;
}

Tensor ShapesOnly::tensor(const Shape& shape, DType dtype) {
  std::int64_t count = 1;
  Shape strides;
  for (const std::int64_t extent : shape) {
    count = checked_product("the size of a parameter", count, extent);
    strides.push_back(0);
  }
  return Tensor::zeros({1}, dtype).view(shape, strides, 0);
}

ModelCost cost_of(Module& model) {
  const auto total = [](const char* what, const std::vector<NamedTensor>& tensors) {
    std::int64_t sum = 0;
    for (const NamedTensor& entry : tensors) {
      std::int64_t count = 1;
      for (const std::int64_t extent : entry.tensor->shape())
        count = checked_product(entry.name, count, extent);
      sum = checked_sum(what, sum, count);
    }
    return sum;
  };
  return {total("the number of parameters", model.parameters()),
          total("the size of buffers", model.buffers())};
}

RandomKey Initialiser::next() {
  const RandomKey key = key_;
  ++key_.op;
  return key;
}

Tensor Initialiser::uniform(const Shape& shape, double low, double high) {
  const RandomKey key = next();
  return ShapesOnly::active() ? ShapesOnly::tensor(shape) : heed::uniform(shape, low, high, key);
}

Tensor Initialiser::normal(const Shape& shape, double deviation) {
  const RandomKey key = next();
  return ShapesOnly::active() ? ShapesOnly::tensor(shape) : heed::normal(shape, 0, deviation, key);
}

Tensor Initialiser::constant(const Shape& shape, double value, DType dtype) {
  return ShapesOnly::active() ? ShapesOnly::tensor(shape, dtype) : Tensor::full(shape, value, dtype);
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
