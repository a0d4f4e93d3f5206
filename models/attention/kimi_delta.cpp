// Kimi Delta Attention: "Kimi Linear: an expressive, efficient attention architecture", Kimi Team
// 2025, arXiv 2510.26692, sections 3 and 4. It is Gated DeltaNet (gated_deltanet.cpp) with a
// separate decay per feature of the keys and with low-rank gates:
//
//   S_t = (I - beta_t k_t^T k_t) diag(alpha_t) S_{t-1} + beta_t k_t^T v_t,   o_t = q_t S_t (eq. 1)
//   alpha_t = e^( -e^A softplus(x_t Wa1 Wa2 + ba) )       [dk], with one A for each head
//   beta_t = sigmoid(x_t Wb)
//   q, k = unit( silu( conv(X Wq) ) ), unit( silu( conv(X Wk) ) ),   v = silu( conv(X Wv) )
//   O = ( sigmoid(X Wg1 Wg2 + bg) * merge(RMSNorm(o)) ) Wo       one vector of gains for all heads
//
// Wa1 and Wg1 lead to r features. unit, conv and the state are those of gated_deltanet; a feature
// may fade arbitrarily fast (core/recurrence.h). The paper uses no positions. Decoding keeps S and
// c - 1 inputs of conv.
//
// The paper says only that alpha is made as in Gated DeltaNet and Mamba. The formula above, the bias
// bg and the first values, e^A from U(1, 16) and softplus(ba) from e^U(log 0.001, log 0.1), follow
// the authors' code, in flash-linear-attention. Departures, as in gated_deltanet.cpp: q is scaled by
// 1 / sqrt(dk) only with "scale", and the maps of q, k, v, beta and O have biases if `bias` is set.
//
// Gated DeltaNet-2: "Gated DeltaNet-2: decoupling erase and write in linear attention", Hatamizadeh,
// Choi and Kautz 2026, arXiv 2605.22791. Kimi Delta Attention with two rates in place of beta, for each
// feature of the keys, which is erased, and of the values, which is written:
//
//   S_t = (I - k_t^T (b_t * k_t)) diag(alpha_t) S_{t-1} + k_t^T (w_t * v_t)
//   b_t = sigmoid(x_t Wb) [dk],   w_t = sigmoid(x_t Ww) [dv]
//
// Here Wb and Ww are columns of one map. With "reflect", b is twice the sigmoid, so that a token may
// reflect at its key (the authors' code, off by default).
//
// Padded tokens write nothing, fade nothing and are 0 for conv. Dropout drops tokens from what is
// written. Without `causal`, an extension: o is the sum of both directions, and conv looks ahead in
// the backward one.
//
// Time N dk d + N d^2, memory N d, parameters (3 + e) d^2 + 2 r d (1 + e); of
// Gated DeltaNet-2 3 (1 + e) d^2 + 2 r d (1 + e).
//
// Settings: "value_width" e, the width of v relative to q (1); "convolution" c (4); "gate_rank" r
// (0: d / H); "scale" (false): q is divided by sqrt(dk); of Gated DeltaNet-2 also "reflect" (false).

#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/delta_net.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class KimiDelta : public DeltaNet {
 public:
  explicit KimiDelta(const AttentionConfig& config, const DeltaRule& rule = {})
      : DeltaNet(config, rule),
        rank_(read_rank(config)),
        decay_in_(*this, "decay_in", config.width, rank_, false, initialiser_),
        decay_out_(*this, "decay_out", rank_, config.width, false, initialiser_),
        gate_in_(*this, "gate_in", config.width, rank_, false, initialiser_),
        gate_out_(*this, "gate_out", rank_, value_width_, true, initialiser_) {
    add_parameter("decay_rate", rate_, first_decay_rates(config.heads, initialiser_));
    add_parameter("decay_step", step_, first_decay_steps(config.width, initialiser_));
  }

 protected:
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const std::vector<Tensor> x =
        Linear::each({&query_, &key_, &value_, &strength_, &decay_in_, &gate_in_}, input.x);
    const DType precise = statistics_type(input.x.dtype());
    const Tensor rates = repeat(exp(cast(rate_, precise)), config().width / config().heads, 0);  // [d]
    const Tensor log_alpha = softplus(cast(decay_out_(x[4]), precise) + cast(step_, precise)) * -rates;
    return output_(sigmoid(gate_out_(x[5])) * recurred(x, log_alpha, input.mask, cache, context));
  }

 private:
  static std::int64_t read_rank(const AttentionConfig& config) {
    const std::int64_t given = config.options.take_integer("gate_rank", 0, 0, most_units);
    return given > 0 ? given : config.width / config.heads;
  }

  std::int64_t rank_;                                       // r
  Part<Linear> decay_in_, decay_out_, gate_in_, gate_out_;  // Wa1, Wa2, Wg1, Wg2 with bg
  Tensor rate_, step_;                                      // A [H], ba [d]
};

class GatedDeltaNet2 : public KimiDelta {
 public:
  explicit GatedDeltaNet2(const AttentionConfig& config)
      : KimiDelta(config, {.reflects = config.options.take_bool("reflect", false), .by_feature = true}) {}
};

}  // namespace

AttentionVariant kimi_delta_variant() {
  return {"kimi_delta",
          {.causal = true, .reason = "it overwrites what it holds from token to token of one sequence"},
          make_layer<KimiDelta>};
}

AttentionVariant gated_deltanet2_variant() {
  return {"gated_deltanet2",
          {.causal = true, .reason = "it overwrites what it holds from token to token of one sequence"},
          make_layer<GatedDeltaNet2>};
}

}  // namespace heed
