// Mamba-3: "Mamba-3: improved sequence modeling using state space principles", Lahoti et al. 2026, arXiv
// 2603.15569, section 3. Mamba-2 (mamba2.cpp) without its convolution. A token also writes the one
// before it (exponential-trapezoidal discretisation, section 3.1), and B and C are rotated by angles
// that add up from token to token, which makes the state complex (section 3.2):
//
//   h_t = a_t h_{t-1} + (1 - lambda_t) dt_t a_t B_{t-1}^T x_{t-1} + lambda_t dt_t B_t^T x_t
//   y_t = C_t h_t + D x_t,   a_t = e^(A_t dt_t),   A_t = -max(softplus(u_t WA), 1e-4)
//   dt  = softplus(U Wdt + bdt),   lambda = sigmoid(U Wlambda)               one for each head
//   B_t = R_t ( RMSNorm(u_t WB) + bB ),  C_t = R_t ( RMSNorm(u_t WC) + bC )     bB, bC: of each head
//   R_t turns elements i and i + n / 2 by phi_ti = sum of dt_s pi tanh(u_s Wtheta)_i over s <= t, i < m
//   O = ( merge(y) * silu(U Wz) ) Wo
//
// U is the input. x has e d / H elements per head; B and C have n and are shared by all heads but for
// their biases and angles. With a rank r above 1 (MIMO, section 3.3), B and C have r rows, which write
// and read with their own scales of the elements of a head, M [H, r, e d / H]:
//
//   x^j = x * Mx_j,  h_t sums over B^j x^j,   y = sum_j My_j * (C^j h_t + D x^j) * silu(z * Mz_j)
//
// As h_{t-1} fades into h_t, it is enough to write (lambda_{t-1} dt_{t-1} + (1 - lambda_t) dt_t) B_{t-1}
// x_{t-1}, faded by a_t, and to add the token itself. So the state takes one recurrence
// (core/recurrence.h), token by token instead of in chunks; with a rank, of 2 r - 1 steps for each token.
// Decoding keeps h, the last B, x and lambda dt, and the angles.
//
// tanh, the bound of A, first values (bB, bC, D and Mz of 1, Mx and My of 1 / r, dt as in Mamba-2) and
// the missing norm before Wo follow the authors' code, which has n = 128, m = n / 4 and r = 4, turns
// neighbours 2 i and 2 i + 1 if r = 1, and has no biases of maps; here those of z, x, B, C and the output
// follow `bias`. Angles are kept within a turn. Padded tokens write nothing, fade nothing, turn nothing
// and are 0 for the next token. Dropout drops tokens from h. The paper has only the causal form. Without
// `causal`, an extension: C h is the sum of both directions, in which a token reads itself once.
//
// Time (2 r - 1) N n e d + 3 e N d^2, memory N r e d, parameters 3 e d^2 and about 2 r n d.
//
// Settings: "expand" e (2); "state" n (64); "angles" m (n / 4); "rank" r (1).

#include <numbers>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

/// Angles without whole turns, so that few digits are lost.
Tensor within_a_turn(const Tensor& angles) {
  constexpr double turn = 2 * std::numbers::pi;
  return angles - round(angles.detach() / turn) * turn;
}

class Mamba3 : public RecurrentAttention {
 public:
  explicit Mamba3(const AttentionConfig& config)
      : RecurrentAttention(config),
        inner_(config.options.take_integer("expand", 2, 1, 64) * config.width),
        states_(config.options.take_integer("state", 64, 1, 4096)),
        angles_(config.options.take_integer("angles", states_ / 4, 0, states_ / 2)),
        rank_(config.options.take_integer("rank", 1, 1, 64)),
        gate_(*this, "gate", config.width, inner_, config.bias, initialiser_),
        value_(*this, "value", config.width, inner_, config.bias, initialiser_),
        key_(*this, "key", config.width, rank_ * states_, config.bias, initialiser_),
        query_(*this, "query", config.width, rank_ * states_, config.bias, initialiser_),
        step_(*this, "step", config.width, config.heads, false, initialiser_),
        decay_(*this, "decay", config.width, config.heads, false, initialiser_),
        share_(*this, "share", config.width, config.heads, false, initialiser_),
        output_(*this, "output", inner_, config.width, config.bias, initialiser_) {
    if (angles_ > 0)
      turn_ = std::make_unique<Part<Linear>>(*this, "turn", config.width, angles_, false, initialiser_);
    const Shape rows{config.heads, rank_, states_}, scales{config.heads, rank_, inner_ / config.heads};
    add_parameter("first_step", first_step_, first_decay_steps(config.heads, initialiser_));
    add_parameter("first_key", first_key_, Initialiser::constant(rows, 1));
    add_parameter("first_query", first_query_, Initialiser::constant(rows, 1));
    add_parameter("key_norm", key_gains_, Initialiser::constant({states_}, 1));
    add_parameter("query_norm", query_gains_, Initialiser::constant({states_}, 1));
    add_parameter("skip", skip_, Initialiser::constant({config.heads}, 1));
    if (rank_ == 1) return;
    const double mean = 1 / static_cast<double>(rank_);
    add_parameter("value_scale", value_scale_, Initialiser::constant(scales, mean));
    add_parameter("gate_scale", gate_scale_, Initialiser::constant(scales, 1));
    add_parameter("output_scale", output_scale_, Initialiser::constant(scales, mean));
  }

 protected:
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const std::int64_t heads = config().heads;
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const std::vector<Tensor> maps =
        Linear::each({&gate_, &value_, &key_, &query_, &step_, &decay_, &share_}, input.x);
    const auto parts_of = [&](const Tensor& t, std::int64_t heads, std::int64_t rows) {
      return cast(reshape(t, {t.size(0), t.size(1), heads, rows, -1}), precise);
    };
    const Tensor x = scaled(parts_of(without_padding(maps[1], input.mask), heads, 1), value_scale_);
    const Tensor dt =
        without_padding(softplus(cast(maps[4], precise) + cast(first_step_, precise)), input.mask);
    const Tensor log_decay = -maximum(softplus(cast(maps[5], precise)), least_decay) * dt;
    const Tensor own = sigmoid(cast(maps[6], precise)) * dt;
    show(context, "fading", [&] { return transpose(exp(log_decay), 1, 2); });
    Tensor turns;
    if (turn_) turns = unsqueeze(dt, 3) * unsqueeze(tanh(cast((*turn_)(input.x), precise)), 2);
    const Tensor written = reshape(
        drop_tokens(reshape(x, {x.size(0), x.size(1), heads, -1}), config().dropout, context), x.shape());
    const Parts parts{
        rms_norm(parts_of(maps[3], 1, rank_), cast(query_gains_, precise)) + cast(first_query_, precise),
        rms_norm(parts_of(maps[2], 1, rank_), cast(key_gains_, precise)) + cast(first_key_, precise),
        written,
        log_decay,
        own,
        dt - own,
        turns};
    Tensor sums = from_earlier(parts, cache);
    if (!config().causal) {
      const auto reversed = [](const Tensor& t) { return t.defined() ? flip(t, 1) : t; };
      const Parts back{reversed(parts.query), reversed(parts.key), reversed(parts.value),
                       reversed(log_decay),   reversed(parts.own), reversed(parts.before),
                       reversed(parts.turns)};
      sums = sums + flip(from_earlier(back, nullptr), 1);
    }
    const Tensor weights = matmul(parts.query, transpose(parts.key, 3, 4)) * wide(own);
    const Tensor y =
        cast(sums + matmul(weights, written) + x * reshape(cast(skip_, precise), {heads, 1, 1}), type);
    const Tensor z = scaled(reshape(maps[0], {x.size(0), x.size(1), heads, 1, -1}), gate_scale_);
    return output_(reshape(sum(scaled(swiglu(z, y), output_scale_), 3), {x.size(0), x.size(1), inner_}));
  }

 private:
  static constexpr double least_decay = 1e-4;

  /// B and C before they turn [B, N, H, r, n], x [B, N, H, r, e d / H]; log a, lambda dt and (1 -
  /// lambda) dt [B, N, H]; and dt tanh [B, N, H, m], undefined without angles.
  struct Parts {
    Tensor query, key, value, log_decay, own, before, turns;
  };

  static Tensor wide(const Tensor& t) { return unsqueeze(unsqueeze(t, 3), 4); }
  /// t [B, N, H, 1 or r, w], whose ranks are multiplied by M; unchanged without M.
  static Tensor scaled(const Tensor& t, const Tensor& scale) {
    return scale.defined() ? t * cast(scale, t.dtype()) : t;
  }

  /// C_t h_t without the token itself, [B, N, H, r, e d / H]. The cache holds h in `key` [B, H, n, e d /
  /// H], in `value` B, x and lambda dt of the last token, and in a part the angles.
  Tensor from_earlier(const Parts& parts, AttentionCache* cache) const {
    const Tensor& value = parts.value;
    const std::int64_t batch = value.size(0), length = value.size(1), heads = value.size(2),
                       steps = 2 * rank_ - 1;
    if (cache && cache->parts.empty()) cache->parts.resize(1);
    Tensor query = parts.query, key = parts.key;
    if (parts.turns.defined()) {
      Tensor angles = within_a_turn(parts.turns * std::numbers::pi);
      if (cache && cache->parts[0].key.defined())
        angles = concat({slice(angles, 1, 0, 1) + cache->parts[0].key, slice(angles, 1, 1, length)}, 1);
      angles = within_a_turn(cumulative_sum(angles, 1));
      if (cache) cache->parts[0].key = contiguous(slice(angles, 1, length - 1, length));
      const Tensor cosines = unsqueeze(cos(angles), 3), sines = unsqueeze(sin(angles), 3);
      query = turned(query, cosines, sines), key = turned(key, cosines, sines);
    }
    const Tensor own = expand(wide(parts.own), {batch, length, heads, rank_, 1});
    const Tensor last = tokens_before(concat({key, value, own}, 4), cache ? &cache->value : nullptr);
    const Tensor decay = wide(exp(parts.log_decay));
    const Tensor rates = decay * (slice(last, 4, last.size(4) - 1, last.size(4)) + wide(parts.before));
    // [B, N, H, r, w] -> [B, H, N (2 r - 1), w]: the ranks write one after the other, then they read.
    const auto in_steps = [&](const Tensor& t, std::int64_t before, std::int64_t after) {
      return reshape(pad(permute(t, {0, 2, 1, 3, 4}), 3, before, after),
                     {batch, heads, length * steps, t.size(4)});
    };
    const Recurrence of{.query = in_steps(query, rank_ - 1, 0),
                        .key = in_steps(slice(last, 4, 0, states_), 0, rank_ - 1),
                        .value = in_steps(slice(last, 4, states_, last.size(4) - 1) * rates, 0, rank_ - 1),
                        .log_decay = squeeze(in_steps(wide(parts.log_decay), 0, steps - 1), 3)};
    const Tensor sums = recurrence_output(of, true, cache ? &cache->key : nullptr);
    const Tensor read = slice(reshape(sums, {batch, heads, length, steps, -1}), 3, rank_ - 1, steps);
    return permute(read, {0, 2, 1, 3, 4});
  }

  /// The first m elements of each half of t [..., n] turn with those of the other half.
  Tensor turned(const Tensor& t, const Tensor& cosines, const Tensor& sines) const {
    const std::int64_t half = states_ / 2;
    const auto part = [&](std::int64_t begin, std::int64_t end) { return slice(t, 4, begin, end); };
    const Tensor a = part(0, angles_), b = part(half, half + angles_);
    return concat({a * cosines - b * sines, part(angles_, half), a * sines + b * cosines,
                   part(half + angles_, states_)},
                  4);
  }

  std::int64_t inner_, states_, angles_, rank_;  // e d, n, m, r
  Part<Linear> gate_, value_, key_, query_, step_, decay_, share_, output_;
  std::unique_ptr<Linear> turn_;                    // Wtheta; null without angles
  Tensor first_step_, skip_;                        // bdt, D [H]
  Tensor first_key_, first_query_;                  // bB, bC [H, r, n]
  Tensor key_gains_, query_gains_;                  // [n]
  Tensor value_scale_, gate_scale_, output_scale_;  // Mx, Mz, My; undefined: one rank
};

}  // namespace

AttentionVariant mamba3_variant() {
  return {
      "mamba3",
      {.causal = true, .reason = "what its state holds fades and turns from token to token of one sequence"},
      make_layer<Mamba3>};
}

}  // namespace heed
