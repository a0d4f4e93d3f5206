#include "heed/models/attention/prefix_pooling.h"

#include <algorithm>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

constexpr std::int64_t chunk = 64;
constexpr double nothing = -1e30;  // the logit of a position that does not count: e^-1e30 = 0

struct Pooled {
  Tensor value;       ///< [R, N, n]
  Tensor log_weight;  ///< log of the sum of e^a, [R, N]
};

/// 1 where column <= row.
Tensor lower_triangle(std::int64_t size, Device device) {
  const Tensor positions = Tensor::arange(size, DType::i32, device);
  return less_equal(unsqueeze(positions, 0), unsqueeze(positions, 1));
}

/// Inside chunks each position weighs the ones before it by a matrix; what came before the chunk joins as one
/// more value, whose weight is that of all the tokens it stands for. Those are prefixes again, of the chunks'
/// totals: a sequence 64 times shorter.
Pooled pool_prefixes(const Tensor& logits, const Tensor& values) {
  const std::int64_t rows = logits.size(0), length = logits.size(1), width = values.size(2);
  const std::int64_t size = std::min(length, chunk), chunks = (length + size - 1) / size;
  const std::int64_t missing = chunks * size - length;
  const Tensor a = reshape(pad(logits, 1, 0, missing, nothing), {rows, chunks, 1, size});
  const Tensor x = reshape(pad(values, 1, 0, missing), {rows, chunks, size, width});

  const Tensor lower = lower_triangle(size, logits.device());
  const Tensor square = expand(a, {rows, chunks, size, size});
  const Tensor outside = equal(lower, Tensor::zeros({1}, DType::i32, logits.device()));
  Tensor log_weight = log_sum_exp(masked_fill(square, outside, nothing), -1);  // [R, chunks, size]
  Tensor value = matmul(masked_softmax(square, lower), x);                     // [R, chunks, size, n]

  if (chunks > 1) {
    const Pooled totals = pool_prefixes(select(log_weight, 2, size - 1), select(value, 2, size - 1));
    const auto before = [&](const Tensor& t, double first) {  // moves each total to the chunk after it
      return unsqueeze(pad(slice(t, 1, 0, chunks - 1), 1, 1, 0, first), 2);
    };
    const Tensor weight_before = before(totals.log_weight, nothing);         // [R, chunks, 1]
    const Tensor share = unsqueeze(sigmoid(weight_before - log_weight), 3);  // [R, chunks, size, 1]
    value = value + (before(totals.value, 0) - value) * share;
    const Tensor both[] = {expand(weight_before, log_weight.shape()), log_weight};
    log_weight = log_sum_exp(stack(both, 3), 3);
  }
  return {slice(reshape(value, {rows, chunks * size, width}), 1, 0, length),
          slice(reshape(log_weight, {rows, chunks * size}), 1, 0, length)};
}

}  // namespace

Tensor prefix_pooling(const Tensor& logits, const Tensor& values, const Tensor& allowed) {
  check(logits.rank() == 2 && values.rank() == 3 && logits.size(0) == values.size(0) &&
            logits.size(1) == values.size(1),
        "prefix_pooling: expects logits [R, N] and values [R, N, n], got shapes ", logits.shape(), " and ",
        values.shape());
  if (logits.count() == 0) return values;
  if (!allowed.defined()) return pool_prefixes(logits, values).value;
  // Zero values too: where nothing counts yet, all of it weighs the same.
  const Tensor hidden = equal(allowed, Tensor::zeros({1}, DType::i32, allowed.device()));
  return pool_prefixes(masked_fill(logits, hidden, nothing), masked_fill(values, unsqueeze(hidden, 2), 0))
      .value;
}

}  // namespace heed
