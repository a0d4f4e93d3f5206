// Differential attention: "Differential Transformer", Ye et al. 2024, arXiv 2410.05258, section
// 2.1. Each head subtracts two softmaxes, whose queries and keys are half as wide as the values.
// The difference cancels attention that both give to everything. [q1; q2], [k1; k2], v = split(X
// Wq), split(Y Wk), split(Y Wv) have widths dh / 2, dh / 2 and dh, with memory Y = X in
// self-attention:
//
//   A = softmax( q1 k1^T / sqrt(dh / 2) ) - lambda softmax( q2 k2^T / sqrt(dh / 2) )        (eq. 1)
//   lambda = e^( lambda_q1 . lambda_k1 ) - e^( lambda_q2 . lambda_k2 ) + lambda_init        (eq. 2)
//   O = merge( (1 - lambda_init) RMSNorm(A v) ) Wo      each head normalised by itself      (eq. 3)
//   lambda_init = 0.8 - 0.6 e^(-0.3 l)                    in layer l = 0, 1, ...
//
// A key is allowed as in dot_product.cpp. The heads of a layer share the vectors of lambda, which
// start from N(0, 0.1^2). All heads also share one vector of RMSNorm gains, as in the authors'
// code; RMSNorm adds 1e-5.
//
// Departures: the paper halves the number of heads to keep the widths of q and k; here H heads have
// values as wide as in other mechanisms. Dropout acts on both softmaxes; the paper drops no
// weights. The paper has decoders with rotary positions; cross-attention and other positions, which
// add the same to both logits, are extensions.
//
// Time N M d + (N + M) d^2 with values read twice; parameters 4 d^2. The head width must be even.
//
// Settings: "layer" l (-1: the layer's place in its stack, 0 for a layer alone); "value_residual"
// (false; shared/sink_and_gate.h).

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/projected_attention.h"

namespace heed {
namespace {

class Differential : public ProjectedAttention {
 public:
  explicit Differential(const AttentionConfig& config)
      : ProjectedAttention(config, {.softmaxes = 2, .options = ProjectionOptions::take(config, false)}),
        initial_lambda_(initial_lambda_in(config)) {
    const std::int64_t width = config.inner_width() / config.heads;
    const char* const names[] = {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"};
    for (int i = 0; i < 4; ++i) add_parameter(names[i], lambdas_[i], initialiser_.normal({width / 2}, 0.1));
    add_parameter("norm", gains_, Initialiser::constant({width}, 1));
  }

 protected:
  Tensor attend(const Tensor& /*x*/, const Tensor& queries, const Tensor& keys, const Tensor& values,
                const Tensor& key_mask, Context& context) override {
    const std::int64_t heads = config().heads;
    const Tensor query = split_heads(queries, 2 * heads), key = split_heads(keys, 2 * heads),
                 value = split_heads(values, heads);
    const auto half = [&](const Tensor& x, std::int64_t which) { return slice(x, 1, which, 2 * heads, 2); };
    const auto options = [&] {
      AttentionOptions own = kernel_options(key_mask, context);
      own.causal = config().causal;
      distances_.add_to(own, query.size(2), key.size(2), query);
      return own;
    };
    const AttentionOptions first_options = options(), second_options = options();
    const Tensor factor = lambda(query.dtype());
    show(context, "weights", [&] {
      return attention_weights(half(query, 0), half(key, 0), first_options) -
             attention_weights(half(query, 1), half(key, 1), second_options) * factor;
    });
    const Tensor first = attention(half(query, 0), half(key, 0), value, first_options),
                 second = attention(half(query, 1), half(key, 1), value, second_options);
    const Tensor normed = rms_norm(first - second * factor, gains_) * (1 - initial_lambda_);
    return w_.output(merge_heads(normed));
  }

 private:
  static double initial_lambda_in(const AttentionConfig& config) {
    const std::int64_t layer = config.options.take_integer("layer", -1, -1, 1 << 20);
    return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer < 0 ? config.layer : layer));
  }

  Tensor lambda(DType dtype) const {
    const auto exponential = [&](int i) {
      return exp(
          sum(cast(lambdas_[i], statistics_type(dtype)) * cast(lambdas_[i + 1], statistics_type(dtype))));
    };
    return cast(exponential(0) - exponential(2) + initial_lambda_, dtype);
  }

  double initial_lambda_;
  Tensor lambdas_[4];  // [dh / 2] each
  Tensor gains_;       // [dh]
};

}  // namespace

AttentionVariant differential_variant() {
  return {"differential",
          {.causal = true, .cross = true, .as_heads = true, .rotary = true, .alibi = true, .relative = true},
          make_layer<Differential>};
}

}  // namespace heed
