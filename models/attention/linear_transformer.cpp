// Linear Transformer: "Transformers are RNNs: Fast autoregressive Transformers with linear
// attention", Katharopoulos, Vyas, Pappas and Fleuret 2020, arXiv 2006.16236, section 3. A product
// of positive features replaces the softmax. q, k, v = split(X Wq), split(Y Wk), split(Y Wv), with
// memory Y = X in self-attention:
//
//   phi(x) = elu(x) + 1                                                                    (eq. 7)
//   O_i    = phi(q_i) S / (phi(q_i) z),  S = sum_j phi(k_j)^T v_j,  z = sum_j phi(k_j)^T (eq. 5, 6)
//   causal: S_i = S_{i-1} + phi(k_i)^T v_i,  z_i = z_{i-1} + phi(k_i)^T        (eq. 9 - 12, 18, 19)
//   O      = merge(...) Wo
//
// Padded keys enter no sum. Decoding keeps only S and z, at any length. The causal form uses
// core/recurrence.h.
//
// Departure: dropout drops tokens from S; the paper has no weights to drop. log phi is computed as
// min(x, 0) + log(1 + max(x, 0)), which stays accurate for very negative x.
//
// Time N dh d + N d^2, memory N d, parameters 4 d^2. No settings.

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/feature_attention.h"

namespace heed {
namespace {

class LinearTransformer : public FeatureAttention {
 public:
  using FeatureAttention::FeatureAttention;

 protected:
  FeatureMap feature_map(Context&) override {
    return [](const Tensor& x, const Places&) { return Features{minimum(x, 0) + log1p(relu(x))}; };
  }
};

}  // namespace

AttentionVariant linear_transformer_variant() {
  return {
      "linear_transformer", {.causal = true, .cross = true, .as_heads = true}, make_layer<LinearTransformer>};
}

}  // namespace heed
