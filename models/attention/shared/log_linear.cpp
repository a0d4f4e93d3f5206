#include <algorithm>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

constexpr std::int64_t most_pairs = 32;  // tokens of a block up to which pairs are cheaper than a state

/// lambda of a level, [B, H, N, 1].
Tensor scale_at(const Tensor& scales, std::int64_t level) {
  const std::int64_t column = std::min(level, scales.size(3) - 1);
  return slice(scales, 3, column, column + 1);
}

/// What the tokens read from themselves.
Tensor read_own(const Recurrence& of, const Tensor& scales) {
  return sum(of.query * of.key, -1, true) * scale_at(scales, 0) * of.value;
}

/// Sums of g over the later tokens of axis 3, without the token's own.
Tensor later_sums(const Tensor& g) {
  return cumulative_sum(pad(slice(g, 3, 1, g.size(3)), 3, 0, 1), 3, true);
}

/// o of a whole sequence. At every level blocks of tokens are read by the block after each.
Tensor read_whole(const Recurrence& of, const Tensor& scales) {
  const std::int64_t batch = of.query.size(0), heads = of.query.size(1), length = of.query.size(2);
  Tensor out = read_own(of, scales);
  for (std::int64_t level = 1, size = 1; size < length; ++level, size *= 2) {
    const std::int64_t count = ceil_div(length, 2 * size), padded = count * 2 * size;
    const auto half = [&](const Tensor& t, std::int64_t which) {  // [B, H, blocks, size, ...]
      const Tensor blocks =
          reshape(pad(t, 2, 0, padded - length), {batch, heads, count, 2 * size, t.size(3)});
      return slice(blocks, 3, which * size, (which + 1) * size);
    };
    const Tensor g = unsqueeze(of.log_decay, 3), before = later_sums(half(g, 0)),
                 after = cumulative_sum(half(g, 1), 3), key = half(of.key, 0), value = half(of.value, 0),
                 query = half(of.query * scale_at(scales, level), 1);
    const Tensor read =
        size <= most_pairs
            ? matmul(matmul(query, transpose(key, 3, 4)) * exp(after + transpose(before, 3, 4)), value)
            : matmul(query * exp(after), matmul(transpose(key * exp(before), 3, 4), value));
    out = out + slice(reshape(pad(read, 3, size, 0), {batch, heads, padded, value.size(4)}), 2, 0, length);
  }
  return out;
}

/// The states after a whole sequence, one for each bit of its length.
std::vector<AttentionCache> states_after(const Recurrence& of) {
  const std::int64_t length = of.query.size(2);
  const Tensor g = unsqueeze(of.log_decay, 2);  // [B, H, 1, N]
  const Tensor keys = of.key * exp(transpose(later_sums(g), 2, 3));
  std::vector<AttentionCache> states;
  for (std::int64_t size = 1; size <= length; size *= 2) {
    states.emplace_back();
    if ((length & size) == 0) continue;
    const std::int64_t begin = length & ~(2 * size - 1);
    const auto block = [&](const Tensor& t) { return slice(t, 2, begin, begin + size); };
    states.back().key = matmul(transpose(block(keys), 2, 3), block(of.value));
  }
  return states;
}

/// o of one token [B, H, 1, dv], which the states then hold.
Tensor read_step(const Recurrence& of, const Tensor& scales, std::vector<AttentionCache>& states) {
  Tensor out = read_own(of, scales);
  for (std::size_t l = 0; l < states.size(); ++l) {
    Tensor& state = states[l].key;
    if (!state.defined()) continue;
    state = state * unsqueeze(exp(of.log_decay), 3);
    out = out + matmul(of.query * scale_at(scales, static_cast<std::int64_t>(l) + 1), state);
  }
  Tensor carried = matmul(transpose(of.key, 2, 3), of.value);
  std::size_t level = 0;
  for (; level < states.size() && states[level].key.defined(); ++level) {
    carried = carried + states[level].key;
    states[level].key = {};
  }
  states.resize(std::max(states.size(), level + 1));
  states[level].key = carried;
  return out;
}

}  // namespace

Tensor log_linear_output(const Recurrence& of, const Tensor& scales, bool causal, AttentionCache* cache) {
  if (!causal) {
    const auto reversed = [](const Tensor& t) { return flip(t, 2); };
    const Recurrence back{.query = reversed(of.query),
                          .key = reversed(of.key),
                          .value = reversed(of.value),
                          .log_decay = reversed(of.log_decay)};
    return read_whole(of, scales) + reversed(read_whole(back, reversed(scales))) - read_own(of, scales);
  }
  if (!cache || cache->parts.empty()) {
    if (cache) cache->parts = states_after(of);
    return read_whole(of, scales);
  }
  std::vector<Tensor> outputs;
  for (std::int64_t t = 0; t < of.query.size(2); ++t) {
    const auto token = [&](const Tensor& all) { return slice(all, 2, t, t + 1); };
    outputs.push_back(read_step({.query = token(of.query),
                                 .key = token(of.key),
                                 .value = token(of.value),
                                 .log_decay = token(of.log_decay)},
                                token(scales), cache->parts));
  }
  return concat(outputs, 2);
}

}  // namespace heed
