// cosFormer: "cosFormer: rethinking softmax in attention", Qin et al. 2022, arXiv 2202.08791,
// section 3. Weights are products of non-negative features, scaled by the cosine of the distance.
// The cosine factors into features of each position. q, k, v = split(X Wq), split(Y Wk), split(Y
// Wv), with memory Y = X in self-attention:
//
//   s_ij = relu(q_i) relu(k_j)^T cos( pi (i - j) / (2 L) )                              (eq. 9, 10)
//        = phi(q_i) phi(k_j)^T,    phi(x_i) = [ relu(x_i) cos(a_i), relu(x_i) sin(a_i) ]
//   a_i  = pi i / (2 L)
//   O_i  = merge( sum_j s_ij v_j / sum_j s_ij ) Wo     over the keys j, causal: j <= i      (eq. 6)
//
// L is max_length. The paper only requires it to be at least the length. The authors' code uses the
// length of the batch, which would make a token's output depend on later tokens and on the batch.
// It also clamps denominators from below, at 1e-6; here only a query that matches no key gives 0.
//
// Positions count padding. Padded keys enter no sum. shared/feature_attention.h has the rest,
// including decoding with a state of constant size.
//
// Time N dh d + N d^2 with features of width 2 dh, memory N d, parameters 4 d^2. No settings.

#include <limits>
#include <numbers>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/feature_attention.h"

namespace heed {
namespace {

class CosFormer : public FeatureAttention {
 public:
  using FeatureAttention::FeatureAttention;

 protected:
  FeatureMap feature_map(Context&) override {
    return [this](const Tensor& x, const Places& places) {
      check_length(places.begin + places.count);
      const std::int64_t times = places.count > 0 ? x.size(2) / places.count : 0;
      const Tensor at = tile(Tensor::arange(places.count, DType::i32, x.device()), {times});
      const double turn = std::numbers::pi / (2 * static_cast<double>(config().max_length));
      const Tensor angle =
          unsqueeze((cast(at, x.dtype()) + static_cast<double>(places.begin)) * turn, 1);  // [N, 1]
      // The reciprocal of a smaller number is infinite.
      const Tensor is_positive = greater(x, x.dtype() == DType::f64 ? 6e-309 : 3e-39);
      const Tensor logs =
          where(is_positive, log(where(is_positive, x, 1)), -std::numeric_limits<double>::infinity());
      return Features{concat({logs + log(cos(angle)), logs + log(sin(angle))}, 3)};
    };
  }
};

}  // namespace

AttentionVariant cosformer_variant() {
  return {"cosformer",
          {.causal = true, .cross = true, .any_length = false, .as_heads = true},
          make_layer<CosFormer>};
}

}  // namespace heed
