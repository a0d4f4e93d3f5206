// DeltaProduct: "DeltaProduct: improving state-tracking in linear RNNs via Householder products",
// Siems et al. 2025, arXiv 2502.10297, section 3. Gated DeltaNet (gated_deltanet.cpp) with n delta
// rules per token, each with its own key, value and rate. A product of n generalised Householder
// matrices can permute what the state holds, so more rules track more complex states:
//
//   S_t = A_n ... A_1 alpha_t S_{t-1} + sum_j A_n ... A_{j+1} beta_{t,j} k_{t,j}^T v_{t,j}
//   A_j = I - beta_{t,j} k_{t,j}^T k_{t,j},   beta_{t,j} = 2 sigmoid(x_t Wb_j),   o_t = q_t S_t
//   q, k_j = unit( silu( conv(X Wq) ) ), unit( silu( conv(X Wk_j) ) ),   v_j = silu( conv(X Wv_j) )
//   alpha_t = e^( -e^A softplus(x_t Wa + ba) )                                   one for each head
//   O = ( silu(X Wg) * merge(RMSNorm(o)) ) Wo          one vector of gains for all heads
//   not gated: alpha = 1, O = merge(RMSNorm(o)) Wo
//
// A rate above 1 reflects at the key, which negative eigenvalues of A_j mean (Grazzi et al. 2024,
// arXiv 2411.12537); without "reflect", beta = sigmoid(x_t Wb). With n = 1 and without it, this is
// Gated DeltaNet. The rules of a token are n tokens of the recurrence (core/recurrence.h), as in the
// authors' code. Decoding keeps S and c - 1 inputs of conv.
//
// Padding, dropout, first values, departures and the form without `causal`, an extension, are those of
// gated_deltanet.cpp. The backward direction applies a token's rules in the same order.
//
// Time n N dk d + N d^2, memory n N d, parameters (1 + n + 2 e + n e) d^2.
//
// Settings: "rules" n (2); "reflect" (true); "gated" (true); "value_width" e, the width of v relative
// to q (1); "convolution" c (4); "scale" (false): q is divided by sqrt(dk).

#include "heed/models/attention/shared/delta_net.h"

namespace heed {
namespace {

class DeltaProduct : public GatedDelta {
 public:
  explicit DeltaProduct(const AttentionConfig& config)
      : GatedDelta(config, {.steps = config.options.take_integer("rules", 2, 1, 64),
                            .reflects = config.options.take_bool("reflect", true)}) {}
};

}  // namespace

AttentionVariant delta_product_variant() {
  return {"delta_product",
          {.causal = true, .reason = "it overwrites what it holds from token to token of one sequence"},
          make_layer<DeltaProduct>};
}

}  // namespace heed
