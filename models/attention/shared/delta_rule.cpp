#include "heed/models/attention/shared/delta_rule.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {
namespace {

/// Blocks of m rows, numbered from 0: which of them each of L rows is in, f32 [L].
Tensor block_of_rows(std::int64_t size, std::int64_t m, Device device) {
  return floor(cast(Tensor::arange(size, DType::i32, device), DType::f32) / static_cast<double>(m));
}

/// i32 [L, L], 1 where a row is in the second half of a block of 2 m rows, and the column in its first.
Tensor pairs_of_halves(std::int64_t size, std::int64_t m, Device device) {
  const Tensor half = block_of_rows(size, m, device);
  return equal(unsqueeze(half, 1), unsqueeze(half, 0) + 1) * unsqueeze(equal(floor(half * 0.5) * 2, half), 0);
}

/// (I + A)^-1 of a [..., L, L], of which the part below the diagonal counts. For blocks,
/// [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]].
Tensor inverse_of_unit_lower(const Tensor& a) {
  const std::int64_t size = a.size(-1);
  Tensor inverse = eye(size, a.dtype(), a.device());
  for (std::int64_t half = 1; half < size; half *= 2) {
    const Tensor between = where(pairs_of_halves(size, half, a.device()), a, 0);  // R of all blocks
    inverse = half == 1 ? inverse - between : inverse - matmul(inverse, matmul(between, inverse));
  }
  return inverse;
}

/// Sums of g [R, chunks, L, n] over halves of m rows each, by additions alone, so that none of their digits
/// is lost however long the chunk is: in a first half those after a row, in a second half those up to it.
Tensor sums_to_the_middle(const Tensor& g, std::int64_t m) {
  const Tensor halves = reshape(g, {g.size(0), g.size(1), g.size(2) / m, m, g.size(3)});
  const Tensor at = block_of_rows(g.size(2) / m, 1, g.device());
  const Tensor is_second = reshape(at - floor(at * 0.5) * 2, {g.size(2) / m, 1, 1});
  const Tensor after = pad(slice(halves, 3, 1, m), 3, 0, 1);
  return reshape(where(equal(is_second, 1), cumulative_sum(halves, 3), cumulative_sum(after, 3, true)),
                 g.shape());
}

/// x_i e^{g_{j+1} + ... + g_i} y_j for j < i, else 0, in chunks of L rows, a power of 2: g [R, chunks, L, 1
/// or dk] (undefined: 0), x and y with one or more vectors for each, [R, chunks, a L, dk] and [..., b L, dk]
/// -> [R, chunks, a L, b L].
Tensor products_with_earlier(const Tensor& x, const Tensor& y, const Tensor& g, std::int64_t size) {
  const std::int64_t rows = x.size(0), count = x.size(1), a = x.size(2) / size, b = y.size(2) / size;
  const Device device = x.device();
  const Shape flat{rows, count, a * size, b * size}, by_row{rows, count, a, size, b, size};
  if (!g.defined() || g.size(3) == 1) {
    const Tensor products = matmul(x, transpose(y, 2, 3));
    Tensor fading = Tensor::ones({1, 1, size, size}, x.dtype(), device);
    if (g.defined()) {
      const Tensor c = cumulative_sum(g, 2);
      fading = exp(minimum(c - transpose(c, 2, 3), 0));
    }
    return reshape(reshape(products, by_row) * unsqueeze(unsqueeze(tril(fading, -1), 3), 2), flat);
  }
  Tensor sums = Tensor::zeros(by_row, x.dtype(), device);
  for (std::int64_t half = 1; half < size; half *= 2) {
    const Tensor fading = unsqueeze(exp(sums_to_the_middle(g, half)), 2);  // [R, chunks, 1, L, dk]
    const auto faded = [&](const Tensor& t, std::int64_t vectors) {
      return reshape(reshape(t, {rows, count, vectors, size, t.size(3)}) * fading, t.shape());
    };
    const Tensor products = reshape(matmul(faded(x, a), transpose(faded(y, b), 2, 3)), by_row);
    sums = sums + where(unsqueeze(pairs_of_halves(size, half, device), 1), products, 0);
  }
  return reshape(sums, flat);
}

}  // namespace

Tensor delta_rule(const DeltaRule& rule, Tensor* state) {
  const Shape& shape = rule.query.shape();  // [B, H, N, dk]
  const std::int64_t length = shape[2], rows = shape[0] * shape[1],
                     width = (rule.value.defined() ? rule.value : rule.added_value).size(3);
  const auto size = std::min<std::int64_t>(
      32, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(length))));
  const std::int64_t count = ceil_div(length, size);
  const auto chunked = [&](const Tensor& x) {  // [B, H, N, n] -> [B H, chunks, L, n]
    return x.defined() ? reshape(pad(x, 2, 0, count * size - length), {rows, count, size, x.size(3)}) : x;
  };
  const bool decays = rule.log_decay.defined(), adds = rule.added_key.defined();
  const Tensor q = chunked(rule.query), r = chunked(rule.reading), w = chunked(rule.writing),
               v = chunked(rule.value), a = chunked(rule.added_key), u = chunked(rule.added_value),
               g = chunked(decays && rule.log_decay.rank() == 3 ? unsqueeze(rule.log_decay, 3)
                                                                : rule.log_decay);
  const Tensor keys = adds ? concat({w, a}, 2) : w;
  const Tensor pairs = products_with_earlier(concat({r, q}, 2), keys, g, size);
  const Tensor of_reading = slice(pairs, 2, 0, size);
  const auto own = [&](const Tensor& key) {
    return sum(q * key, -1, true) * eye(size, q.dtype(), q.device());
  };
  const Tensor seen = slice(pairs, 2, size, 2 * size) + (adds ? concat({own(w), own(a)}, 3) : own(w));
  const Tensor t = inverse_of_unit_lower(adds ? slice(of_reading, 3, 0, size) : of_reading);
  Tensor adding = v, asking = q, removing = r, keeping = keys, whole;
  if (adds) {
    const Tensor taken = matmul(slice(of_reading, 3, size, 2 * size), u);
    adding = v.defined() ? v - taken : -taken;
  }
  if (decays) {
    const Tensor since = exp(cumulative_sum(g, 2)),
                 left = exp(cumulative_sum(pad(slice(g, 2, 1, size), 2, 0, 1), 2, true));  // to the last row
    asking = q * since, removing = r * since;
    keeping = keys * (adds ? concat({left, left}, 2) : left);
    whole = transpose(slice(since, 2, size - 1, size), 2, 3);  // [B H, chunks, 1 or dk, 1]
  }
  adding = matmul(t, adding), removing = matmul(t, removing);

  Tensor s;  // [B H, 1, dk, dv]
  if (state && state->defined()) s = reshape(*state, {rows, 1, shape[3], width});
  const std::vector<std::int64_t> single(static_cast<std::size_t>(count), 1);
  const auto chunks_of = [&](const Tensor& x) {
    return x.defined() ? split(x, 1, single) : std::vector<Tensor>();
  };
  const std::vector<Tensor> added = chunks_of(adding), removed = chunks_of(removing),
                            within = chunks_of(seen), asked = chunks_of(asking), kept = chunks_of(keeping),
                            fades = chunks_of(whole), plain = chunks_of(u);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < added.size(); ++i) {  // [B H, 1, ...] each
    Tensor written = s.defined() ? added[i] - matmul(removed[i], s) : added[i];
    if (!plain.empty()) written = concat({written, plain[i]}, 2);
    const Tensor recent = matmul(within[i], written);
    outputs.push_back(s.defined() ? recent + matmul(asked[i], s) : recent);
    const Tensor more = matmul(transpose(kept[i], 2, 3), written);
    s = s.defined() ? (fades.empty() ? s : s * fades[i]) + more : more;
  }
  if (state) *state = reshape(s, {shape[0], shape[1], shape[3], width});
  return reshape(slice(reshape(concat(outputs, 1), {rows, count * size, width}), 1, 0, length),
                 {shape[0], shape[1], length, width});
}

}  // namespace heed
