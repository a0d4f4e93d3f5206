// FNet: "FNet: mixing tokens with Fourier transforms", Lee-Thorp, Ainslie, Eckstein and Ontanon 2021, arXiv
// 2105.03824, section 3.2. No weights and no parameters: the real part of a discrete Fourier transform over
// the features and over the positions,
//
//   O = Re( F_n X F_d )        (F_n)_jk = e^(-2 pi i j k / n)                             (eq. 3)
//     = C_n (X C_d) - S_n (X S_d)       C, S: the cosines and sines of F
//
// computed as products with these matrices, which for the lengths of texts cost less than the rest of a layer
// (section 3.2.1 of the paper; a fast transform would take N log N).
//
// Padding: n is the number of real tokens of the sample, and j and k are their places among themselves, so a
// sample gives the same in any batch. (The authors transform the padding, too.)
//
// The transform multiplies lengths by sqrt(n d), beside which the residual X vanishes, as in the paper;
// `unitary` divides by it. Every output sees every input, so there is no causal form. Dropout has nothing to
// drop.
//
// Time N^2 d + N d^2, memory N^2 (per sample where there is padding), no parameters. At most 46,340 positions.
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
  Tensor cosines, sines;  // [B, N, N]
};

/// Of the angles 2 pi p_j p_k / n: places p i32 [B, N], periods n [B, 1]. The product is reduced to less than
/// a period in integers, where nothing is rounded.
Waves waves(const Tensor& places, const Tensor& periods) {
  const Tensor product = unsqueeze(places, 2) * unsqueeze(places, 1), n = unsqueeze(periods, 2);
  const Tensor turns = cast(floor(cast(product, n.dtype()) / n), DType::i32);
  const Tensor angle = cast(product - turns * cast(n, DType::i32), n.dtype()) / n * (2 * std::numbers::pi);
  return {cos(angle), sin(angle)};
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
    if (input.mask.defined()) x = where(unsqueeze(input.mask, 2), x, 0);
    const RealPlaces real = real_places(input.mask, x);
    const Tensor features = Tensor::arange(width, DType::i32, x.device());
    const Waves over_features = waves(
        unsqueeze(features, 0), Tensor::full({1, 1}, static_cast<double>(width), x.dtype(), x.device()));
    const Waves over_positions = waves(real.place, real.count);
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
