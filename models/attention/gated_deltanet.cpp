// Gated DeltaNet: "Gated delta networks: improving Mamba2 with delta rule", Yang et al. 2024, arXiv
// 2412.06464, section 3. Its option DeltaNet: "Parallelizing linear Transformers with the delta
// rule over sequence length", Yang et al. 2024, arXiv 2406.06484. A head's state maps keys to
// values. It decays, and then a token overwrites the value stored for its key, at the rate beta:
//
//   S_t = alpha_t (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t,   o_t = q_t S_t      (eq. 10)
//   alpha_t = e^( -e^A softplus(x_t Wa + ba) ),   beta_t = sigmoid(x_t Wb)        one for each head
//   q, k = unit( silu( conv(X Wq) ) ), unit( silu( conv(X Wk) ) ),   v = silu( conv(X Wv) )
//   O = ( silu(X Wg) * merge(RMSNorm(o)) ) Wo      one vector of gains for all heads
//   DeltaNet: alpha = 1, O = merge(RMSNorm(o)) Wo
//
// unit(x) = x / sqrt(|x|^2 + 1e-6). conv is causal with c taps (shared/token_sums.h). The
// state is computed token by token (core/recurrence.h), not in chunks (2406.06484, section 3).
// Decoding keeps S and c - 1 inputs of conv.
//
// Padded tokens write nothing, fade nothing and are 0 for conv. Dropout drops tokens from what is
// written.
//
// Departures: the authors' code scales q by 1 / sqrt(dk), as "scale" does here. RMSNorm cancels it
// only where o is large beside the root of its 1e-5; initially outputs differ by some percent to a
// third. They draw e^A from U(0, 16). Here e^A starts from U(1, 16), and softplus(ba) from e^U(log
// 0.001, log 0.1) as in theirs. Their maps have no biases; here those of projections, beta and the
// gate follow `bias`. Their models have dk = 3/4 and dv = 3/2 of d / H. The papers have only the
// causal form. Without `causal`, an extension: o is the sum of both directions, and conv looks ahead
// in the backward one.
//
// Time N dk d + N d^2, memory N d, parameters (3 + 2 e) d^2.
//
// Settings: "gated" (true; false: DeltaNet); "value_width" e, the width of v relative to q (1);
// "convolution" c (4); "scale" (false): q is divided by sqrt(dk).

#include "heed/models/attention/shared/delta_net.h"

namespace heed {
namespace {

class GatedDeltaNet : public GatedDelta {
 public:
  explicit GatedDeltaNet(const AttentionConfig& config) : GatedDelta(config) {}
};

}  // namespace

AttentionVariant gated_deltanet_variant() {
  return {"gated_deltanet",
          {.causal = true, .reason = "it overwrites what it holds from token to token of one sequence"},
          make_layer<GatedDeltaNet>};
}

}  // namespace heed
