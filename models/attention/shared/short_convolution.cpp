#include "heed/models/attention/shared/short_convolution.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {

ShortConvolution::ShortConvolution(std::int64_t taps, std::int64_t channels, bool with_bias,
                                   Initialiser& initialiser) {
  const double bound = 1 / std::sqrt(static_cast<double>(taps));
  add_parameter("weight", weight, initialiser.uniform({taps, channels}, -bound, bound));
  if (with_bias) add_parameter("bias", bias, Initialiser::constant({channels}, 0));
}

Tensor ShortConvolution::operator()(const Tensor& x, Tensor* before) const {
  const std::int64_t taps = weight.size(0), length = x.size(1);
  const bool continues = before && before->defined();
  const Tensor padded = continues ? concat({*before, x}, 1) : pad(x, 1, taps - 1, 0);
  if (before) *before = contiguous(slice(padded, 1, length, length + taps - 1));
  Tensor sum;
  for (std::int64_t t = 0; t < taps; ++t) {
    const Tensor term = slice(padded, 1, t, t + length) * select(weight, 0, t);
    sum = sum.defined() ? sum + term : term;
  }
  return bias.defined() ? sum + bias : sum;
}

}  // namespace heed
