// Factorized Random Synthesizer: "Synthesizer: Rethinking Self-Attention for Transformer Models", Tay, Bahri,
// Metzler, Juan, Zhao and Zheng 2021, arXiv 2005.00743 v3, section 3.4. Random logits of rank k:
//
//   S_h = R1_h[0:N] R2_h[0:N]^T                           [1, H, N, N]   (eq. 6)
//   Y_h = softmax( S_h ) v_h,   O = merge(Y) Wo           (eq. 2, in synthesizer_logits.cpp)
//
// S is a product, so the fused attention kernel makes it on its way, with R1 and R2 in the place of queries
// and keys; no weight matrix is held at all. Time N^2 (H k + d) + N d^2, memory N d (fused). Parameters 2 d^2
// + 2 H L k, L = max_length.
//
// Settings: k (default 8, as in the paper; the released code has 16), deviation (of the normal initial
// factors; default k^(-1/4), so that each logit starts with variance 1). Longer inputs than L are an error,
// shorter ones use the leading rows.

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/synthesizer_logits.h"

namespace heed {
namespace {

class FactorizedRandomLogits : public SynthesizerLogits {
 public:
  FactorizedRandomLogits(const AttentionConfig& config, Initialiser& initialiser) {
    const std::int64_t k = config.options.take_integer("k", 8, 1, most_units);
    const double deviation =
        config.options.take_number("deviation", std::pow(static_cast<double>(k), -0.25), 1e-6, 1e6);
    const Shape shape{config.heads, config.max_length, k};
    add_parameter("R1", r1_, initialiser.normal(shape, deviation));
    add_parameter("R2", r2_, initialiser.normal(shape, deviation));
  }

  LogitFactors factors(const Tensor& x, std::int64_t first) const override {
    return {unsqueeze(slice(r1_, 1, first, x.size(1)), 0),  // [1, H, n, k]
            unsqueeze(slice(r2_, 1, 0, x.size(1)), 0)};     // [1, H, N, k]
  }

 private:
  Tensor r1_, r2_;  // [H, L, k]
};

}  // namespace

LogitsPtr make_factorized_random_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<FactorizedRandomLogits>(config, initialiser);
}

AttentionVariant synthesizer_factorized_random_variant() {
  return {"synthesizer_factorized_random", synthesizer_capabilities(), [](const AttentionConfig& config) {
            return make_synthesizer("synthesizer_factorized_random", config, make_factorized_random_logits);
          }};
}

}  // namespace heed
