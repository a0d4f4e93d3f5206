// FNet: "FNet: mixing tokens with Fourier transforms", Lee-Thorp, Ainslie, Eckstein and Ontanon
// 2021, arXiv 2105.03824, section 3.2. It has no weights or parameters. Its output is the real part
// of a discrete Fourier transform over the features and positions:
//
//   O = Re( F_n X F_d )        (F_n)_jk = e^(-2 pi i j k / n)                             (eq. 3)
//     = (C_n X) C_d - (S_n X) S_d       C, S: the cosines and sines of F
//
// fourier() computes it, on the CPU with a fast transform.
//
// Padding: n is the number of real tokens of the sample. They are brought together before the
// transform, so a sample's output does not depend on its batch. The authors also transform the
// padding, and published weights were trained that way. "padding" = "counted" does the same and has
// no mask.
//
// The transform multiplies vector lengths by sqrt(n d) and so swamps the residual X, as in the
// paper; `unitary` divides by this factor. Each output depends on every input, so there is no
// causal form. Dropout has no effect.
//
// Time N d log(N d) on the CPU, if N has no large prime factors. Elsewhere N (a + b) d + N d^2,
// with N = a b and a near sqrt(N), and with padding N^2 d + N d^2. Memory N d. At most 46,340
// positions.
//
// Settings: "unitary" (false); "padding", "skipped" (default) or "counted".

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class FNet : public Attention {
 public:
  explicit FNet(const AttentionConfig& config)
      : Attention(config),
        unitary_(config.options.take_bool("unitary", false)),
        counted_(is_padding_counted(config.options)) {}

 protected:
  bool counts_padding() const override { return counted_; }

  Tensor forward(const AttentionInput& input, Context&) override {
    const Tensor x = cast(input.x, statistics_type(input.x.dtype()));
    const auto scaled = [&](const Tensor& transformed, const Tensor& count) {
      return unitary_ ? transformed / sqrt(count * static_cast<double>(x.size(2))) : transformed;
    };
    const Tensor mask = counted_ ? Tensor() : input.mask;
    const RealPlaces real = real_places(mask, x);
    const Tensor count = unsqueeze(real.count, 2);
    if (!mask.defined()) return cast(scaled(fourier(x), count), input.x.dtype());
    const Tensor together = gather_rows(x, argsort(mask, true));
    const Tensor out = fourier(together, cast(squeeze(real.count, 1), DType::i32));
    return cast(scaled(gather_rows(out, where(mask, real.place, -1)), count), input.x.dtype());
  }

 private:
  bool unitary_, counted_;
};

Capabilities fnet_capabilities(const Options& options) {
  return {.padding = !is_padding_counted(options),
          .reason = "a Fourier transform mixes all positions, past and future, of one sequence"};
}

}  // namespace

AttentionVariant fnet_variant() {
  return {"fnet", fnet_capabilities({}), make_layer<FNet>, fnet_capabilities};
}

}  // namespace heed
