#include "heed/models/attention/shared/token_sums.h"

#include <cmath>

#include "heed/autograd/ops.h"

namespace heed {

Tensor recurrence_output(Recurrence of, bool causal, Tensor* state) {
  if (causal) {
    if (state) of.state = *state;
    const RecurrenceResult found = recurrence(of);
    if (state) *state = found.state;
    return found.output;
  }
  const Tensor before = recurrence(of).output;
  of.reverse = true;
  const Tensor both = before + recurrence(of).output;
  return of.reading.defined() ? both : both - sum(of.query * of.key, -1, true) * of.value;
}

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

Tensor tokens_before(const Tensor& x, Tensor* last) {
  const std::int64_t length = x.size(1);
  const bool continues = last && last->defined();
  const Tensor joined = continues ? concat({*last, x}, 1) : pad(x, 1, 1, 0);
  if (last) *last = contiguous(slice(joined, 1, length, length + 1));
  return slice(joined, 1, 0, length);
}

Tensor first_values(const Shape& shape, const std::function<double(std::int64_t n)>& value) {
  if (ShapesOnly::active()) return ShapesOnly::tensor(shape);
  std::vector<float> numbers;
  for (std::int64_t n = 0; n < shape.count(); ++n) numbers.push_back(static_cast<float>(value(n)));
  return Tensor::from(numbers, shape);
}

Tensor first_decay_rates(std::int64_t heads, Initialiser& initialiser) {
  const Tensor rates = initialiser.uniform({heads}, 1, 16);
  return ShapesOnly::active() ? rates : log(rates);
}

Tensor first_decay_steps(std::int64_t heads, Initialiser& initialiser) {
  const Tensor logarithms = initialiser.uniform({heads}, std::log(0.001), std::log(0.1));
  return ShapesOnly::active() ? logarithms : log(expm1(exp(logarithms)));  // the inverse of softplus
}

RealPlaces real_places(const Tensor& mask, const Tensor& x) {
  const DType precise = statistics_type(x.dtype());
  const std::int64_t length = x.size(1);
  if (!mask.defined())
    return {unsqueeze(Tensor::arange(length, DType::i32, x.device()), 0),
            Tensor::full({1, 1}, static_cast<double>(length), precise, x.device())};
  const Tensor real = cast(mask, precise);
  return {cast(cumulative_sum(real, 1), DType::i32) - 1, maximum(sum(real, 1, true), 1)};
}

Tensor divisor(const Tensor& total) {
  return masked_fill(total, equal(total.detach(), 0), 1);
}

}  // namespace heed
