#include "heed/models/attention/shared/token_sums.h"

#include <algorithm>
#include <limits>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

constexpr std::int64_t positions_at_once = 64;

/// How positions are cut into chunks, the last of which is filled up.
struct Chunks {
  explicit Chunks(std::int64_t length)
      : size(std::min(length, positions_at_once)),
        count(ceil_div(length, size)),
        missing(count * size - length) {}

  std::int64_t size, count, missing;
};

/// e^{c_i - c_j} for j <= i and 0 above: c [..., L] never rises -> [..., L, L].
Tensor decay_between(const Tensor& c) {
  return tril(exp(minimum(unsqueeze(c, -1) - unsqueeze(c, -2), 0)));  // exp of what is above may overflow
}

}  // namespace

Tensor decayed_sums(const Tensor& x, const Tensor& log_decay) {
  if (!log_decay.defined()) return cumulative_sum(x, 1);
  const std::int64_t rows = x.size(0), length = x.size(1), width = x.size(2);
  const Chunks chunks(length);
  const Tensor added = reshape(pad(x, 1, 0, chunks.missing), {rows, chunks.count, chunks.size, width});
  const Tensor decay =  // since the beginning of the chunk
      cumulative_sum(reshape(pad(log_decay, 1, 0, chunks.missing), {rows, chunks.count, chunks.size}), 2);
  Tensor sums = matmul(decay_between(decay), added);
  if (chunks.count > 1) {  // the sums of whole chunks are such sums, too, of a shorter sequence
    const Tensor whole = decayed_sums(select(sums, 2, -1), select(decay, 2, -1));
    const Tensor before = pad(slice(whole, 1, 0, chunks.count - 1), 1, 1, 0);
    sums = sums + exp(unsqueeze(decay, 3)) * unsqueeze(before, 2);
  }
  return slice(reshape(sums, {rows, chunks.count * chunks.size, width}), 1, 0, length);
}

Tensor linear_recurrence(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& log_decay,
                         Tensor* state) {
  const std::int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  const std::int64_t rows = batch * heads, key_width = key.size(3), width = value.size(3);
  const Chunks chunks(length);
  const auto chunked = [&](const Tensor& x) {
    return reshape(pad(x, 2, 0, chunks.missing), {rows, chunks.count, chunks.size, x.size(3)});
  };
  const Tensor q = chunked(query), k = chunked(key), v = chunked(value);
  Tensor weights = tril(matmul(q, transpose(k, 2, 3)));
  Tensor decay;  // since the beginning of the chunk
  if (log_decay.defined()) {
    const Tensor each = pad(expand(log_decay, {batch, heads, length}), 2, 0, chunks.missing);
    decay = cumulative_sum(reshape(each, {rows, chunks.count, chunks.size}), 2);
    weights = weights * decay_between(decay);
  }
  Tensor out = matmul(weights, v);
  if (chunks.count > 1 || state) {
    const Tensor whole = decay.defined() ? slice(decay, 2, chunks.size - 1, chunks.size) : Tensor();
    const Tensor kept = decay.defined() ? k * exp(unsqueeze(whole - decay, 3)) : k;
    const Tensor sums = reshape(matmul(transpose(kept, 2, 3), v), {rows, chunks.count, key_width * width});
    const bool continues = state && state->defined();
    const Tensor states = decayed_sums(  // before each chunk, and after the last
        continues ? concat({reshape(*state, {rows, 1, key_width * width}), sums}, 1) : pad(sums, 1, 1, 0),
        decay.defined() ? pad(squeeze(whole, 2), 1, 1, 0) : Tensor());
    const Tensor before = reshape(slice(states, 1, 0, chunks.count), {rows, chunks.count, key_width, width});
    out = out + matmul(decay.defined() ? q * exp(unsqueeze(decay, 3)) : q, before);
    if (state)
      *state = reshape(slice(states, 1, chunks.count, chunks.count + 1), {batch, heads, key_width, width});
  }
  return reshape(slice(reshape(out, {rows, chunks.count * chunks.size, width}), 1, 0, length),
                 {batch, heads, length, width});
}

Tensor running_max(const Tensor& x) {
  const std::int64_t length = x.size(-1);
  Tensor largest = x.detach();
  for (std::int64_t shift = 1; shift < length; shift *= 2)
    largest = maximum(largest, pad(slice(largest, -1, 0, length - shift), -1, shift, 0,
                                   -std::numeric_limits<double>::infinity()));
  return largest;
}

Tensor drop_tokens(const Tensor& values, double p, Context& context) {
  if (!context.training || p == 0) return values;
  const Tensor ones =
      Tensor::ones({values.size(0), values.size(1), values.size(2), 1}, values.dtype(), values.device());
  return values * dropout(ones, p, context.random.next());
}

}  // namespace heed
