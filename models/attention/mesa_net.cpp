// MesaNet: "MesaNet: sequence modeling by locally optimal test-time training", von Oswald et al. 2025,
// arXiv 2506.05233, section 2. A token reads the linear map from keys to values that fits all earlier
// tokens best, by weighted and regularised least squares, instead of one step towards it:
//
//   G_t = gamma_t G_{t-1} + beta_t k_t^T v_t,   H_t = gamma_t H_{t-1} + beta_t k_t^T k_t
//   o_t = q_t (H_t + diag(lambda))^-1 G_t
//   gamma_t = sigmoid(x_t Wa + ba),  beta_t = sigmoid(x_t Wb + bb),  lambda = 1/4 + softplus(l)
//   q, k = unit( silu( conv(X Wq) ) ), unit( silu( conv(X Wk) ) ),   v = X Wv
//   O = merge(RMSNorm(o)) Wo                                      one vector of gains for all heads
//
// unit(x) = x / sqrt(|x|^2 + 1e-6). conv is causal with c taps (shared/token_sums.h). q (H + diag
// lambda)^-1 comes from n steps of conjugate gradients from 0, each of which is a recurrence
// (core/recurrence.h) for all tokens at once. Gradients are those of the solution, from as many steps for
// the gradient of o in place of q; neither keeps the steps. Decoding keeps G, H and c - 1 inputs of conv.
//
// conv, the norm, lambda, with the first value 1, and n follow the authors' code, in
// flash-linear-attention. ba and bb are always there; other biases follow `bias`. Padded tokens write
// nothing, fade nothing and are 0 for conv. Dropout drops tokens from G and H. The paper has only the
// causal form. Without `causal`, an extension: o is the sum of both directions, and conv looks ahead
// in the backward one.
//
// Time 2 n N dh d + N d^2, memory N d, parameters 4 d^2.
//
// Settings: "iterations" n (30); "convolution" c (4).

#include <cmath>
#include <vector>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class MesaNet : public RecurrentAttention {
 public:
  explicit MesaNet(const AttentionConfig& config)
      : RecurrentAttention(config),
        iterations_(config.options.take_integer("iterations", 30, 1, 1000)),
        query_(*this, "query", config.width, config.width, config.bias, initialiser_),
        key_(*this, "key", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        decay_(*this, "decay", config.width, config.heads, true, initialiser_),
        strength_(*this, "strength", config.width, config.heads, true, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_),
        convolution_(*this, "convolution", config.options.take_integer("convolution", 4, 1, 64),
                     2 * config.width, false, initialiser_) {
    add_parameter("ridge", ridge_,
                  Initialiser::constant({config.width}, std::log(std::expm1(1 - least_ridge))));
    add_parameter("norm", gains_, Initialiser::constant({config.width / config.heads}, 1));
  }

 protected:
  /// The cache holds H and G side by side in `key` [B, H, dh, 2 dh], and in `value` the last inputs of
  /// the convolution.
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const std::vector<Tensor> x = Linear::each({&query_, &key_, &value_, &decay_, &strength_}, input.x);
    const Tensor log_gamma = without_padding(-softplus(-cast(x[3], precise)), input.mask);
    const Tensor beta = without_padding(sigmoid(cast(x[4], precise)), input.mask);
    show(context, "fading", [&] { return transpose(exp(log_gamma), 1, 2); });
    const Parts parts{without_padding(concat({x[0], x[1]}, 2), input.mask), x[2],
                      drop_tokens(beta, config().dropout, context), log_gamma};
    Tensor out = one_way(parts, cache);
    if (!config().causal) {
      const auto reversed = [](const Tensor& t) { return flip(t, 1); };
      out = out + flip(one_way({reversed(parts.query_key), reversed(parts.value), reversed(parts.beta),
                                reversed(parts.log_gamma)},
                               nullptr),
                       2);
    }
    const Tensor normed = rms_norm(transpose(out, 1, 2), cast(gains_, precise));
    return output_(cast(reshape(normed, input.x.shape()), type));
  }

 private:
  static constexpr double least_ridge = 0.25;

  struct Parts {
    Tensor query_key, value, beta, log_gamma;  // [B, N, 2 d], [B, N, d] and [B, N, H]
  };

  /// o [B, H, N, dh].
  Tensor one_way(const Parts& parts, AttentionCache* cache) const {
    const std::int64_t width = config().width, heads = config().heads, columns = width / heads;
    const DType precise = statistics_type(parts.value.dtype());
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(contiguous(t), heads), precise); };
    const Tensor mixed = silu(convolution_(parts.query_key, cache ? &cache->value : nullptr));
    const auto size = static_cast<double>(columns);
    const auto unit = [&](std::int64_t begin) {
      return rms_norm(heads_of(slice(mixed, 2, begin, begin + width)), {}, 1e-6 / size) / std::sqrt(size);
    };
    const Tensor query = unit(0), key = unit(width), value = heads_of(parts.value),
                 written = key * unsqueeze(transpose(parts.beta, 1, 2), 3),
                 log_decay = transpose(parts.log_gamma, 1, 2);
    const Tensor ridge = reshape(softplus(cast(ridge_, precise)) + least_ridge, {heads, 1, columns});
    const auto state = [&](std::int64_t begin) {
      return cache && cache->key.defined() ? slice(cache->key, 3, begin, begin + columns) : Tensor();
    };
    Recurrence of{.query = query, .key = written, .value = key, .log_decay = log_decay, .state = state(0)};
    Recurrence known = of;
    for (Tensor* t : {&known.query, &known.key, &known.value, &known.log_decay}) *t = t->detach();
    const auto solve = [known, ridge = ridge.detach(), n = iterations_](const Tensor& q) {
      return solved(q, known, ridge, n);
    };
    of.query = solve(known.query);
    const RecurrenceResult seen = recurrence(of);
    // Its value is 0 but for rounding errors, its gradient that of the solution.
    const Tensor left = query - of.query * ridge - seen.output;
    of.query = of.query + record("mesa_net", left.detach() * 0, {left},
                                 [solve](const Tensor& grad) { return Gradients{solve(grad)}; });
    of.value = value, of.state = state(columns);
    const RecurrenceResult found = recurrence(of);
    if (cache) cache->key = concat({seen.state, found.state}, 3);
    return found.output;
  }

  /// q (H + diag lambda)^-1 of every token, where `of` makes H. Nothing is recorded.
  static Tensor solved(const Tensor& q, Recurrence of, const Tensor& ridge, std::int64_t iterations) {
    const NoGrad no_grad;
    const Tensor scale = divisor(max(abs(q), -1, true));  // keeps squares within range
    Tensor left = q / scale, solution = left * 0, error = sum(left * left, -1, true);
    of.query = left;
    for (std::int64_t i = 0; i < iterations; ++i) {
      const Tensor step = of.query * ridge + recurrence(of).output;
      const Tensor rate = error / divisor(sum(of.query * step, -1, true));
      solution = solution + rate * of.query;
      left = left - rate * step;
      const Tensor last = divisor(error);
      error = sum(left * left, -1, true);
      of.query = left + error / last * of.query;
    }
    return solution * scale;
  }

  std::int64_t iterations_;  // n
  Part<Linear> query_, key_, value_, decay_, strength_, output_;
  Part<ShortConvolution> convolution_;
  Tensor ridge_, gains_;  // l [d], and RMSNorm's [dh]
};

}  // namespace

AttentionVariant mesa_net_variant() {
  return {"mesa_net", {.causal = true, .reason = "it fits the tokens of one sequence"}, make_layer<MesaNet>};
}

}  // namespace heed
