#include <cmath>
#include <numbers>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/backend.h"

// The Fourier transform as products with cosines and sines ("waves"). Without lengths, positions
// are transformed in two steps (Cooley and Tukey 1965): with n = a b, j = j1 b + j2 and k = k2 a +
// k1,
//
//   (F_n X)_k = sum_j2 e^(-2 pi i j2 k2 / b) sum_j1 e^(-2 pi i j k1 / n) X_j
//
// for k up to n / 2; the rest mirrors these: O[n - k, d - l] = O[k, l]. With lengths, by a product with
// waves for each sample.

namespace heed {
namespace {

struct Waves {
  Tensor cosines, sines;  // [B, R, C]
};

/// Returns the waves of the angles 2 pi p_r q_c / n: places p i32 [B, R] and q i32 [B, C], periods
/// n [B, 1]. The product p q is reduced to less than a period in integers, where nothing is
/// rounded.
Waves waves(const Tensor& rows, const Tensor& columns, const Tensor& periods) {
  const Tensor product = unsqueeze(rows, 2) * unsqueeze(columns, 1), n = unsqueeze(periods, 2);
  const Tensor turns = cast(floor(cast(product, n.dtype()) / n), DType::i32);
  const Tensor angle = cast(product - turns * cast(n, DType::i32), n.dtype()) / n * (2 * std::numbers::pi);
  return {cos(angle), sin(angle)};
}

/// Returns the waves of the first `rows` and `columns` places and one period, [rows, columns].
Waves waves(std::int64_t rows, std::int64_t columns, std::int64_t period, const Tensor& like) {
  const auto first = [&](std::int64_t n) {
    return unsqueeze(Tensor::arange(n, DType::i32, like.device()), 0);
  };
  const Waves w = waves(first(rows), first(columns),
                        Tensor::full({1, 1}, static_cast<double>(period), like.dtype(), like.device()));
  return {squeeze(w.cosines, 0), squeeze(w.sines, 0)};
}

/// O of x [B, n, d] without padding.
Tensor transformed(const Tensor& x, const Waves& features) {
  const std::int64_t batch = x.size(0), n = x.size(1), d = x.size(2);
  std::int64_t a = 1;  // the largest factor up to sqrt(n)
  for (std::int64_t f = 2; f * f <= n; ++f)
    if (n % f == 0) a = f;
  const std::int64_t b = n / a, kept = b / 2 + 1;

  // C X and S X of the inner sum, for each j2: the rows of a product are those of C, then those of S.
  const Waves of_a = waves(a, n, n, x);
  const Tensor inner = permute(reshape(concat({of_a.cosines, of_a.sines}, 0), {2 * a, a, b}), {2, 0, 1});
  const Tensor by_j2 = transpose(reshape(x, {batch, a, b, d}), 1, 2);       // [B, j2, j1, d]
  const Tensor sums = reshape(matmul(inner, by_j2), {batch, b * 2, a, d});  // [B, j2 and C or S, k1, d]

  // The outer sum, for each k1: C = C C - S S, S = S C + C S.
  const Waves of_b = waves(kept, b, b, x);
  const Tensor outer =
      reshape(stack({stack({of_b.cosines, -of_b.sines}, 2), stack({of_b.sines, of_b.cosines}, 2)}, 1),
              {2 * kept, 2 * b});
  const Tensor waved = reshape(matmul(outer, transpose(sums, 1, 2)), {batch, a * kept, 2 * d});

  const Tensor out = matmul(waved, concat({features.cosines, -features.sines}, 0));  // [B, k1 and k2, d]
  const Tensor in_order = reshape(transpose(reshape(out, {batch, a, kept, d}), 1, 2), {batch, kept * a, d});
  const Tensor mirrored = roll(flip(slice(in_order, 1, 1, (n + 1) / 2), {1, 2}), 1, 2);
  return concat({slice(in_order, 1, 0, n / 2 + 1), mirrored}, 1);
}

Tensor composed(const Tensor& x, const Tensor& lengths) {
  const std::int64_t n = x.size(1), d = x.size(2);
  const Waves features = waves(d, d, d, x);
  if (!lengths.defined()) return transformed(x, features);
  const Tensor place = unsqueeze(Tensor::arange(n, DType::i32, x.device()), 0),
               real = less(place, unsqueeze(lengths, 1)), inside = unsqueeze(real, 2);
  const Waves positions = waves(place, place, maximum(cast(unsqueeze(lengths, 1), x.dtype()), 1));
  const Tensor kept = where(inside, x, 0);
  return where(inside,
               matmul(positions.cosines, matmul(kept, features.cosines)) -
                   matmul(positions.sines, matmul(kept, features.sines)),
               0);
}

}  // namespace

Tensor fourier(const Tensor& x, const Tensor& lengths) {
  check_floating("fourier", x);
  constexpr std::int64_t most = 46'340;  // whose square an i32 holds
  check(x.rank() == 3, "fourier: x must be [B, N, d], got shape ", x.shape());
  check(x.size(1) <= most && x.size(2) <= most, "fourier: transforms at most ", most,
        " positions and features, got ", x.size(1), " and ", x.size(2));
  check(!lengths.defined() || (lengths.dtype() == DType::i32 && lengths.shape() == Shape{x.size(0)} &&
                               lengths.device() == x.device()),
        "fourier: lengths must be i32 [", x.size(0), "] on ", x.device());
  const Backend& backend = backend_of(x);
  if (x.count() == 0) return x * 1;
  if (!backend.fourier || ComposeOnly::active()) return composed(x, lengths);
  const Tensor of_samples = plain(lengths), out = empty_like(x);
  backend.fourier(plain(x), of_samples, out);
  return record("fourier", out, {x},
                [of_samples](const Tensor& grad) { return Gradients{fourier(grad, of_samples)}; });
}

}  // namespace heed
