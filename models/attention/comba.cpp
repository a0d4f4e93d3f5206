// Comba: "Comba: improving bilinear RNNs with closed-loop control", Hu et al. 2025, arXiv 2506.02475.
// Gated DeltaNet (gated_deltanet.cpp) as a controlled system: the state is corrected by a share of what
// it answers to the key (state feedback), and the query by what is written (output feedback):
//
//   S_t = (I - f beta_t k_t^T k_t) alpha_t S_{t-1} + beta_t k_t^T v_t,   o_t = (q_t - c k_t) S_t
//   alpha_t = e^( -e^A softplus(x_t Wa + ba) ),   beta_t = sigmoid(x_t Wb)        one for each head
//   f = sigmoid(phi), learned and constant, and c, learned and constant           one for each head
//   q, k = unit( silu( conv(X Wq) ) ), unit( silu( conv(X Wk) ) ),   v = silu( conv(X Wv) )
//   O = ( sigmoid(X Wg) * merge(RMSNorm(o)) ) Wo       one vector of gains for all heads
//
// unit, conv and the state are those of gated_deltanet.cpp. Decoding keeps S and the last inputs of conv.
//
// The decay before the feedback, the gate and phi, from 1, follow the authors' code, in
// flash-linear-attention. Departures: its q - c f k and f k become unit vectors, which cancels f in the
// state; here q and k do, before. Its c starts from 1 and it recommends 0.02 for small models; here from
// "correction". It scales q - c f k by 1 / sqrt(dk), as "scale" does with q here.
//
// Padding, dropout, first values and the form without `causal`, an extension, are those of
// gated_deltanet.cpp. Not gated: alpha = 1 and O = merge(RMSNorm(o)) Wo.
//
// Time N dk d + N d^2, memory N d, parameters (2 + 3 e) d^2.
//
// Settings: "correction", the first value of c (0.02); "gated" (true); "value_width" e, the width of v
// relative to q (1); "convolution", its taps (4); "scale" (false): q is divided by sqrt(dk).

#include "heed/models/attention/shared/delta_net.h"

namespace heed {
namespace {

class Comba : public GatedDelta {
 public:
  explicit Comba(const AttentionConfig& config) : GatedDelta(config, {.controlled = true}) {}
};

}  // namespace

AttentionVariant comba_variant() {
  return {"comba",
          {.causal = true, .reason = "it overwrites what it holds from token to token of one sequence"},
          make_layer<Comba>};
}

}  // namespace heed
