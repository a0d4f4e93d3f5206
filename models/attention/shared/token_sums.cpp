#include "heed/models/attention/shared/token_sums.h"

#include <algorithm>
#include <limits>

#include "heed/autograd/ops.h"

namespace heed {
namespace {

/// How positions are cut into chunks, the last of which is filled up.
struct Chunks {
  explicit Chunks(std::int64_t length, std::int64_t most = 64)
      : size(std::min(length, most)), count(ceil_div(length, size)), missing(count * size - length) {}

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

namespace {

/// The keys, queries and states of linear_recurrence(), with B H as rows: [R, chunks, L, ...].
class Recurrence {
 public:
  Recurrence(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t most_at_once)
      : batch_(query.size(0)),
        heads_(query.size(1)),
        length_(query.size(2)),
        key_width_(key.size(3)),
        width_(value.size(3)),
        rows_(batch_ * heads_),
        chunks_(length_, most_at_once),
        q_(chunked(query)),
        k_(chunked(key)),
        v_(chunked(value)) {}

  /// One decay for each position and head, or none.
  Tensor with_decay(const Tensor& log_decay, Tensor* state) const {
    Tensor decay;  // since the beginning of the chunk, [R, chunks, L]
    if (log_decay.defined()) {
      const Tensor each = pad(expand(log_decay, {batch_, heads_, length_}), 2, 0, chunks_.missing);
      decay = cumulative_sum(reshape(each, {rows_, chunks_.count, chunks_.size}), 2);
    }
    Tensor weights = tril(matmul(q_, transpose(k_, 2, 3)));
    if (decay.defined()) weights = weights * decay_between(decay);
    const Tensor out = matmul(weights, v_);
    if (chunks_.count == 1 && !state) return joined(out);
    if (!decay.defined()) return joined(out + from_before(q_, k_, {}, state));
    const Tensor whole = slice(decay, 2, chunks_.size - 1, chunks_.size);
    return joined(out + from_before(q_ * exp(unsqueeze(decay, 3)), k_ * exp(unsqueeze(whole - decay, 3)),
                                    squeeze(whole, 2), state));
  }

  /// One decay for each feature of the keys.
  Tensor with_decays(const Tensor& log_decay, Tensor* state) const {
    const Tensor decay = cumulative_sum(chunked(log_decay), 2);  // [R, chunks, L, dk]
    const Tensor asking = q_ * exp(decay);
    const Tensor out = matmul(tril(matmul(asking, transpose(k_ * exp(-decay), 2, 3))), v_);
    if (chunks_.count == 1 && !state) return joined(out);
    const Tensor whole = slice(decay, 2, chunks_.size - 1, chunks_.size);
    return joined(out + from_before(asking, k_ * exp(whole - decay), squeeze(whole, 2), state));
  }

 private:
  Tensor chunked(const Tensor& x) const {
    return reshape(pad(x, 2, 0, chunks_.missing), {rows_, chunks_.count, chunks_.size, x.size(3)});
  }
  Tensor joined(const Tensor& x) const {
    return reshape(slice(reshape(x, {rows_, chunks_.count * chunks_.size, width_}), 1, 0, length_),
                   {batch_, heads_, length_, width_});
  }

  /// What the chunks before give each query [R, chunks, L, dk], from the keys as they are at the end of their
  /// chunk. log_decay of whole chunks: [R, chunks], or [R, chunks, dk], or undefined.
  Tensor from_before(const Tensor& query, const Tensor& key, const Tensor& log_decay, Tensor* state) const {
    const Tensor sums = matmul(transpose(key, 2, 3), v_);  // [R, chunks, dk, dv]
    // Rows of S that decay alike are one vector.
    const std::int64_t alike = log_decay.defined() && log_decay.rank() == 3 ? 1 : key_width_;
    const std::int64_t apart = key_width_ / alike, vectors = rows_ * apart;
    const auto as_vectors = [&](const Tensor& x) {
      return reshape(transpose(reshape(x, {rows_, x.size(1), apart, alike * width_}), 1, 2),
                     {vectors, x.size(1), alike * width_});
    };
    const Tensor rates = log_decay.defined()
                             ? reshape(transpose(reshape(log_decay, {rows_, chunks_.count, apart}), 1, 2),
                                       {vectors, chunks_.count})
                             : Tensor();
    const bool continues = state && state->defined();
    const Tensor states = decayed_sums(  // before each chunk, and after the last
        continues ? concat({reshape(*state, {vectors, 1, alike * width_}), as_vectors(sums)}, 1)
                  : pad(as_vectors(sums), 1, 1, 0),
        rates.defined() ? pad(rates, 1, 1, 0) : Tensor());
    const std::int64_t last = chunks_.count;
    if (state) *state = reshape(slice(states, 1, last, last + 1), {batch_, heads_, key_width_, width_});
    const Tensor before =
        transpose(reshape(slice(states, 1, 0, last), {rows_, apart, last, alike * width_}), 1, 2);
    return matmul(query, reshape(before, {rows_, last, key_width_, width_}));
  }

  std::int64_t batch_, heads_, length_, key_width_, width_, rows_;
  Chunks chunks_;
  Tensor q_, k_, v_;
};

}  // namespace

Tensor linear_recurrence(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& log_decay,
                         Tensor* state) {
  if (log_decay.defined() && log_decay.rank() == 4)
    return Recurrence(query, key, value, 16).with_decays(log_decay, state);
  return Recurrence(query, key, value, 64).with_decay(log_decay, state);
}

Tensor recurrence_both_ways(const Tensor& query, const Tensor& key, const Tensor& value,
                            const Tensor& log_decay) {
  const auto reversed = [](const Tensor& x) { return flip(x, 2); };
  const Tensor after =
      linear_recurrence(reversed(query), reversed(key), reversed(value), reversed(log_decay));
  return linear_recurrence(query, key, value, log_decay) + reversed(after) -
         sum(query * key, -1, true) * value;
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

Tensor running_max(const Tensor& x) {
  const std::int64_t length = x.size(-1);
  Tensor largest = x.detach();
  for (std::int64_t shift = 1; shift < length; shift *= 2)
    largest = maximum(largest, pad(slice(largest, -1, 0, length - shift), -1, shift, 0,
                                   -std::numeric_limits<double>::infinity()));
  return largest;
}

}  // namespace heed
