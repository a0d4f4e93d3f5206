#include "heed/models/attention/shared/token_sums.h"

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
