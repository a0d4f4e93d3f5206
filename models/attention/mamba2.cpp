// Mamba-2: "Transformers are SSMs: generalized models and efficient algorithms through structured
// state space duality", Dao and Gu 2024, arXiv 2405.21060, sections 3, 6 and 7. A state space model
// with one decay per head and token. It is linear attention with a mask of decays:
//
//   h_t = e^( -e^A dt_t ) h_{t-1} + dt_t B_t^T x_t,   y_t = C_t h_t + D x_t
//   dt  = softplus(U Wdt + bdt)
//   i.e. y = (C B^T * L) (dt x) + D x,  L_tj = e^( -e^A (dt_{j+1} + ... + dt_t) ) if j <= t, else 0
//   [x, B, C] = silu( conv( U [Wx, WB, WC] ) ),  O = RMSNorm( merge(y) * silu(U Wz) ) Wo  (fig. 6)
//
// U is the input. x has e d / H elements per head; B and C have n and are shared by all heads (one
// group, "multi-value"). conv is causal with c taps and a bias (shared/token_sums.h).
// RMSNorm has gains and spans all heads. The state is computed token by token (core/recurrence.h),
// not in chunks (section 6). Decoding keeps h and c - 1 inputs of conv.
//
// e^A starts from U(1, 16), softplus(bdt) from e^U(log 0.001, log 0.1) and D from 1, as in the
// authors' code, which has n = 128 and heads of 64. Their conv's biases start from U(-1/sqrt(c),
// 1/sqrt(c)), here from 0. Their other maps have no biases; here all but dt's follow `bias`. Padded
// tokens add nothing, fade nothing and are 0 for conv. Dropout drops tokens from h.
//
// The paper has only the causal form. Without `causal`, an extension: L_tj decays in both
// directions, and conv still looks back.
//
// Log-linear Mamba-2 ("Log-linear attention", Guo et al. 2025, arXiv 2506.04761, sections 3 and 3.4)
// reads h^l of each level l of a tree over the earlier tokens (shared/log_linear.h) with a weight:
//
//   y_t = sum_l lambda^l_t C_t h^l_t + D x_t,   lambda_t = softplus(M * split(u_t Wl))      m levels
//
// M [H, m] starts from 1, as in the authors' code (flash-linear-attention), whose e^A starts from 1, 2,
// ... and whose conv has no bias.
//
// Time N n e d + 3 e N d^2, log-linear log2(N) N n e d + 3 e N d^2, memory N e d, parameters 3 e d^2
// and about 2 n d, log-linear H m d more.
//
// Settings: "expand" e (2); "state" n (64); "convolution" c (4); log-linear: "levels" m, with weights
// of their own, the last one for all higher levels (16).

#include <cmath>
#include <memory>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class Mamba2 : public RecurrentAttention {
 public:
  explicit Mamba2(const AttentionConfig& config, bool log_linear = false)
      : RecurrentAttention(config),
        inner_(config.options.take_integer("expand", 2, 1, 64) * config.width),
        states_(config.options.take_integer("state", 64, 1, 4096)),
        gate_(*this, "gate", config.width, inner_, config.bias, initialiser_),
        value_(*this, "value", config.width, inner_, config.bias, initialiser_),
        key_(*this, "key", config.width, states_, config.bias, initialiser_),
        query_(*this, "query", config.width, states_, config.bias, initialiser_),
        step_(*this, "step", config.width, config.heads, false, initialiser_),
        output_(*this, "output", inner_, config.width, config.bias, initialiser_),
        convolution_(*this, "convolution", config.options.take_integer("convolution", 4, 1, 64),
                     inner_ + 2 * states_, true, initialiser_) {
    add_parameter("decay_rate", rate_, first_decay_rates(config.heads, initialiser_));
    add_parameter("first_step", first_step_, first_decay_steps(config.heads, initialiser_));
    add_parameter("skip", skip_, Initialiser::constant({config.heads}, 1));
    add_parameter("norm", gains_, Initialiser::constant({inner_}, 1));
    if (!log_linear) return;
    const std::int64_t levels = config.options.take_integer("levels", 16, 1, 64);
    level_ = std::make_unique<Part<Linear>>(*this, "level", config.width, config.heads * levels, config.bias,
                                            initialiser_);
    add_parameter("level_scale", level_scale_, Initialiser::constant({config.heads, levels}, 1));
  }

 protected:
  /// The cache holds h in `key` [B, H, n, e d / H], log-linear in the keys of its parts, and in
  /// `value` the last inputs of the convolution.
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const std::int64_t heads = config().heads;
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const std::vector<Tensor> maps = Linear::each({&gate_, &value_, &key_, &query_, &step_}, input.x);
    const Tensor joined = without_padding(concat({maps[1], maps[2], maps[3]}, 2), input.mask);
    const Tensor xbc = silu(convolution_(joined, cache ? &cache->value : nullptr));
    const auto heads_of = [&](std::int64_t begin, std::int64_t end, std::int64_t count) {
      return cast(split_heads(contiguous(slice(xbc, 2, begin, end)), count), precise);
    };
    const auto for_all = [&](const Tensor& t) { return expand(t, {t.size(0), heads, t.size(2), t.size(3)}); };
    const Tensor x = heads_of(0, inner_, heads), key = for_all(heads_of(inner_, inner_ + states_, 1)),
                 query = for_all(heads_of(inner_ + states_, inner_ + 2 * states_, 1));
    const Tensor dt = transpose(
        without_padding(softplus(cast(maps[4], precise) + cast(first_step_, precise)), input.mask), 1, 2);
    const Tensor log_decay = dt * unsqueeze(-exp(cast(rate_, precise)), 1);  // [B, H, N]
    show(context, "fading", [&] { return exp(log_decay); });
    const Tensor value = drop_tokens(x * unsqueeze(dt, 3), config().dropout, context);
    const Recurrence of{.query = query, .key = key, .value = value, .log_decay = log_decay};
    Tensor sums;
    if (level_) {
      const Tensor logits = cast(split_heads((*level_)(input.x), heads), precise);
      sums = log_linear_output(of, softplus(logits * unsqueeze(cast(level_scale_, precise), 1)),
                               config().causal, cache);
    } else {
      sums = recurrence_output(of, config().causal, cache ? &cache->key : nullptr);
    }
    const Tensor y = sums + x * reshape(cast(skip_, precise), {heads, 1, 1});
    return output_(rms_norm(swiglu(maps[0], cast(merge_heads(y), type)), gains_));
  }

 private:
  std::int64_t inner_, states_;  // e d, n
  Part<Linear> gate_, value_, key_, query_, step_, output_;
  Part<ShortConvolution> convolution_;
  Tensor rate_, first_step_, skip_;  // A, bdt, D [H]
  Tensor gains_;                     // [e d]
  std::unique_ptr<Linear> level_;    // Wl; null: one state
  Tensor level_scale_;               // M [H, m]
};

class LogLinearMamba2 : public Mamba2 {
 public:
  explicit LogLinearMamba2(const AttentionConfig& config) : Mamba2(config, true) {}
};

}  // namespace

AttentionVariant mamba2_variant() {
  return {"mamba2",
          {.causal = true, .reason = "what its state holds fades from token to token of one sequence"},
          make_layer<Mamba2>};
}

AttentionVariant log_linear_variant() {
  return {"log_linear",
          {.causal = true, .reason = "what its states hold fades from token to token of one sequence"},
          make_layer<LogLinearMamba2>};
}

}  // namespace heed
