#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"

namespace heed {

namespace {

Tensor apply_dropout(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                     const Tensor& out) {
  require_kernel(backend_of(x).dropout, "dropout", x.device());
  backend_of(x).dropout(x, residual, p, key, out);
  return out;
}

void check_probability(const char* op, double p) {
  check(p >= 0 && p < 1, op, ": probability ", p, " is outside [0, 1)");
}

}  // namespace

Tensor dropout(const Tensor& x, double p, const RandomKey& key) {
  check_floating("dropout", x);
  check_probability("dropout", p);
  if (p == 0) return x;
  return record("dropout", apply_dropout(contiguous(x.detach()), {}, p, key, empty_like(x)), {x},
                [p, key](const Tensor& grad) {
                  return Gradients{apply_dropout(contiguous(grad), {}, p, key, reuse_or_empty(grad))};
                });
}

Tensor dropout_add(const Tensor& x, const Tensor& residual, double p, const RandomKey& key) {
  check_same("dropout_add", x, residual);
  check_floating("dropout_add", x);
  check_probability("dropout_add", p);
  check(x.shape() == residual.shape(), "dropout_add: shapes ", x.shape(), " and ", residual.shape(),
        " differ");
  if (p == 0) return x + residual;
  const Tensor out =
      apply_dropout(contiguous(x.detach()), contiguous(residual.detach()), p, key, empty_like(x));
  return record("dropout_add", out, {x, residual}, [p, key](const Tensor& grad) {
    return Gradients{apply_dropout(contiguous(grad), {}, p, key, empty_like(grad)), grad};
  });
}

Tensor uniform(const Shape& shape, double low, double high, const RandomKey& key, DType dtype,
               Device device) {
  check(is_floating(dtype), "uniform: needs f32 or f64, got ", dtype);
  const Tensor out = Tensor::empty(shape, dtype, device);
  const double widest =
      dtype == DType::f64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  check(out.count() == 0 || (-widest <= low && low <= high && high <= widest && high - low <= widest),
        "uniform: [", low, ", ", high, ") is no interval of ", dtype);
  require_kernel(backend_of(device).uniform, "uniform", device);
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
  require_kernel(backend_of(device).normal, "normal", device);
  backend_of(device).normal(key, mean, deviation, out);
  return out;
}

}  // namespace heed
