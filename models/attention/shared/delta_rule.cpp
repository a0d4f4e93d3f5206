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

/// x_i e^{c_i - c_j} y_j for j < i and, `with_own`, j = i, else 0: x, y [..., L, dk], c [..., L, 1 or dk],
/// which never rises (undefined: 0) -> [..., L, L]. L is a power of 2.
Tensor products_of_pairs(const Tensor& x, const Tensor& y, const Tensor& c, bool with_own) {
  const std::int64_t size = x.size(-2);
  const Device device = x.device();
  if (!c.defined() || c.size(-1) == 1) {
    Tensor products = matmul(x, transpose(y, -1, -2));
    if (c.defined()) products = products * exp(minimum(c - transpose(c, -1, -2), 0));
    return tril(products, with_own ? 0 : -1);
  }
  Tensor sums = (with_own ? sum(x * y, -1, true) : Tensor::zeros({1}, x.dtype(), device)) *
                eye(size, x.dtype(), device);
  for (std::int64_t half = 1; half < size; half *= 2) {
    const Tensor cut = reshape(c, {c.size(0), c.size(1), size / (2 * half), 2 * half, c.size(3)});
    const Tensor since = reshape(cut - slice(cut, 3, half - 1, half), c.shape());
    const Tensor block = block_of_rows(size, half, device);
    const Tensor sign = cast(block * 2 - floor(block * 0.5) * 4 - 1, x.dtype());  // -1 in a first half, or 1
    const Tensor fading = exp(since * unsqueeze(sign, 1));
    sums = sums +
           where(pairs_of_halves(size, half, device), matmul(x * fading, transpose(y * fading, -1, -2)), 0);
  }
  return sums;
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
  const Tensor q = chunked(rule.query), r = chunked(rule.reading), w = chunked(rule.writing),
               v = chunked(rule.value), a = chunked(rule.added_key), u = chunked(rule.added_value);
  Tensor c;  // [B H, chunks, L, 1 or dk]
  if (rule.log_decay.defined())
    c = cumulative_sum(chunked(rule.log_decay.rank() == 3 ? unsqueeze(rule.log_decay, 3) : rule.log_decay),
                       2);
  const Tensor t = inverse_of_unit_lower(products_of_pairs(r, w, c, false));
  Tensor adding = v, seen = products_of_pairs(q, w, c, true), asking = q, removing = r, keeping = w, whole;
  if (a.defined()) {
    const Tensor taken = matmul(products_of_pairs(r, a, c, false), u);
    adding = v.defined() ? v - taken : -taken;
    seen = concat({seen, products_of_pairs(q, a, c, true)}, 3);
    keeping = concat({w, a}, 2);
  }
  if (c.defined()) {
    const Tensor last = slice(c, 2, size - 1, size), left = exp(last - c);
    asking = q * exp(c), removing = r * exp(c);
    keeping = keeping * (a.defined() ? concat({left, left}, 2) : left);
    whole = exp(transpose(last, 2, 3));  // [B H, chunks, 1 or dk, 1]
  }
  adding = matmul(t, adding), removing = matmul(t, removing);

  Tensor s;  // [B H, 1, dk, dv]
  if (state && state->defined()) s = reshape(*state, {rows, 1, shape[3], width});
  const std::vector<std::int64_t> single(static_cast<std::size_t>(count), 1);
  const auto chunks_of = [&](const Tensor& x) {
    return x.defined() ? split(x, 1, single) : std::vector<Tensor>();
  };
  const std::vector<Tensor> added = chunks_of(adding), removed = chunks_of(removing), own = chunks_of(seen),
                            asked = chunks_of(asking), kept = chunks_of(keeping), fades = chunks_of(whole),
                            plain = chunks_of(u);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < added.size(); ++i) {  // [B H, 1, ...] each
    Tensor written = s.defined() ? added[i] - matmul(removed[i], s) : added[i];
    if (!plain.empty()) written = concat({written, plain[i]}, 2);
    const Tensor within = matmul(own[i], written);
    outputs.push_back(s.defined() ? within + matmul(asked[i], s) : within);
    const Tensor more = matmul(transpose(kept[i], 2, 3), written);
    s = s.defined() ? (fades.empty() ? s : s * fades[i]) + more : more;
  }
  if (state) *state = reshape(s, {shape[0], shape[1], shape[3], width});
  return reshape(slice(reshape(concat(outputs, 1), {rows, count * size, width}), 1, 0, length),
                 {shape[0], shape[1], length, width});
}

}  // namespace heed
