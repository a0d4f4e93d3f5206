// FNet: "FNet: mixing tokens with Fourier transforms", Lee-Thorp, Ainslie, Eckstein and Ontanon 2021, arXiv
// 2105.03824, section 3.2. No weights and no parameters: the real part of a discrete Fourier transform over
// the features and over the positions,
//
//   O = Re( F_n X F_d )        (F_n)_jk = e^(-2 pi i j k / n)                             (eq. 3)
//     = (C_n X) C_d - (S_n X) S_d       C, S: the cosines and sines of F
//
// The features are transformed by a product with these matrices, the positions in two steps (Cooley and Tukey
// 1965), as products of factors: with n = a b, j = j1 b + j2 and k = k2 a + k1,
//
//   (F_n X)_k = sum_j2 e^(-2 pi i j2 k2 / b) sum_j1 e^(-2 pi i j k1 / n) X_j
//
// for k up to n / 2; the rest mirrors these: O[n - k, d - l] = O[k, l].
//
// Padding: n is the number of real tokens of the sample, and j and k are their places among themselves, so a
// sample gives the same in any batch. (The authors transform the padding, too.) As n differs from sample to
// sample, positions are then transformed by a product with C_n and S_n.
//
// The transform multiplies lengths by sqrt(n d), beside which the residual X vanishes, as in the paper;
// `unitary` divides by it. Every output sees every input, so there is no causal form. Dropout has nothing to
// drop.
//
// Time N (a + b) d + N d^2, memory N d, with a and b near sqrt(N) where N has such factors; with padding time
// N^2 d + N d^2, memory N^2 per sample. No parameters. At most 46,340 positions.
//
// Settings: "unitary" (false).

#include <cmath>
#include <numbers>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/places.h"

namespace heed {
namespace {

struct Waves {
  Tensor cosines, sines;  // [B, R, C]
};

/// Of the angles 2 pi p_r q_c / n: places p i32 [B, R] and q i32 [B, C], periods n [B, 1]. The product is
/// reduced to less than a period in integers, where nothing is rounded.
Waves waves(const Tensor& rows, const Tensor& columns, const Tensor& periods) {
  const Tensor product = unsqueeze(rows, 2) * unsqueeze(columns, 1), n = unsqueeze(periods, 2);
  const Tensor turns = cast(floor(cast(product, n.dtype()) / n), DType::i32);
  const Tensor angle = cast(product - turns * cast(n, DType::i32), n.dtype()) / n * (2 * std::numbers::pi);
  return {cos(angle), sin(angle)};
}

/// Of the first `rows` and `columns` places and one period, [rows, columns].
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

class FNet : public Attention {
 public:
  explicit FNet(const AttentionConfig& config)
      : Attention(config), unitary_(config.options.take_bool("unitary", false)) {}

 protected:
  Tensor forward(const AttentionInput& input, Context&) override {
    constexpr std::int64_t most = 46'340;  // whose square an i32 holds
    const std::int64_t length = input.x.size(1), width = input.x.size(2);
    check(length <= most && width <= most, "attention 'fnet' transforms at most ", most,
          " positions and features, got ", length, " and ", width);
    Tensor x = cast(input.x, statistics_type(input.x.dtype()));
    const Waves over_features = waves(width, width, width, x);
    if (!input.mask.defined()) {
      const Tensor out = transformed(x, over_features);
      return cast(unitary_ ? out / std::sqrt(static_cast<double>(length * width)) : out, input.x.dtype());
    }
    x = where(unsqueeze(input.mask, 2), x, 0);
    const RealPlaces real = real_places(input.mask, x);
    const Waves over_positions = waves(real.place, real.place, real.count);
    Tensor out = matmul(over_positions.cosines, matmul(x, over_features.cosines)) -
                 matmul(over_positions.sines, matmul(x, over_features.sines));
    if (unitary_) out = out / unsqueeze(sqrt(real.count * static_cast<double>(width)), 2);
    return cast(out, input.x.dtype());
  }

 private:
  bool unitary_;
};

}  // namespace

AttentionVariant fnet_variant() {
  return {"fnet",
          {.reason = "a Fourier transform mixes all positions, past and future, of one sequence"},
          make_layer<FNet>};
}

}  // namespace heed
