// RWKV-6, time mixing: "Eagle and Finch: RWKV with matrix-valued states and dynamic recurrence", Peng
// et al. 2024, arXiv 2404.05892, section 4.2 (Finch). Every token mixes with the previous one, by
// shares that depend on both. A head's state maps keys to values and fades at a rate that each token
// sets for each feature of the keys. A token's own value counts by a bonus u instead of its place in
// the state:
//
//   x'_m = x_t + (x_{t-1} - x_t) * ( mu_m + tanh(z Wm1) Wm2_m )     for m = w, k, v, r, g
//   z    = x_t + (x_{t-1} - x_t) * mu_x
//   r, k, v, g = x'_r Wr, x'_k Wk, x'_v Wv, silu(x'_g Wg)
//   w_t = e^( -e^(w0 + tanh(x'_w Ww1) Ww2) )
//   o_t = r_t S_{t-1} + (r_t . (u * k_t)) v_t,   S_t = diag(w_t) S_{t-1} + k_t^T v_t
//   O   = ( merge(GroupNorm(o)) * g ) Wo                                       a group is a head
//
// GroupNorm has gains and biases, and adds 1e-5 dh, which is the authors' 64e-5 for heads of 64. The
// state uses core/recurrence.h, whose query reads after its own token, so keys, values and decays move
// back by one token. Decoding keeps S and the last x.
//
// mu, w0 and u start as in the first layer of the authors' code, at any depth; GroupNorm's gains start
// from 1. Matrices start as elsewhere in heed, but Wm2 and Ww2 near 0 (U(-0.01, 0.01), as theirs).
// The maps to r, k, v, g and O have biases if projections do; the paper's have none. The
// paper's channel mixing corresponds to a feed-forward layer.
//
// A padded token counts as 0 for the next token, and writes and fades nothing. Dropout drops tokens
// from S. The paper has only the causal form. Without `causal`, an extension: r S is the sum of both
// directions, and tokens still mix with the previous one.
//
// Time N dh d + N d^2, memory N d, parameters 5 d^2 + 10 n d + 2 m d.
//
// Settings: "mix_rank" n of the maps of the shares (32); "rank" m of the map of w (64).

#include <algorithm>
#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

constexpr double most_fading = 8;  // e^-e^8 is 0 even in f64

class Rwkv6 : public RecurrentAttention {
 public:
  explicit Rwkv6(const AttentionConfig& config)
      : RecurrentAttention(config),
        mix_rank_(config.options.take_integer("mix_rank", 32, 1, most_units)),
        rank_(config.options.take_integer("rank", 64, 1, most_units)),
        query_(*this, "query", config.width, config.width, config.bias, initialiser_),
        key_(*this, "key", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        gate_(*this, "gate", config.width, config.width, config.bias, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_),
        mix_in_(*this, "mix_in", config.width, 5 * mix_rank_, false, initialiser_),
        decay_in_(*this, "decay_in", config.width, rank_, false, initialiser_) {
    const std::int64_t width = config.width;
    add_parameter("mix_out", mix_out_, initialiser_.uniform({5, mix_rank_, width}, -0.01, 0.01));
    add_parameter("decay_out", decay_out_, initialiser_.uniform({rank_, width}, -0.01, 0.01));
    add_parameter("mix", mix_, first_values({6, width}, [&](auto n) {
                    const double i = static_cast<double>(n % width) / static_cast<double>(width);
                    return 1 - std::pow(i, n < 4 * width ? 1 : 0.5);
                  }));
    const auto last = static_cast<double>(std::max<std::int64_t>(width - 1, 1));
    add_parameter("first_decay", first_decay_, first_values({width}, [&](auto n) {
                    return -6 + 5 * std::pow(static_cast<double>(n) / last, 0.7);
                  }));
    add_parameter("bonus", bonus_,
                  first_values({width}, [](auto n) { return 0.1 * (static_cast<double>((n + 1) % 3) - 1); }));
    add_parameter("norm", gains_, Initialiser::constant({width}, 1));
    add_parameter("norm_bias", biases_, Initialiser::constant({width}, 0));
  }

 protected:
  /// The cache holds S in `key`, and in `value` the last x [B, 1, d].
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const std::int64_t heads = config().heads, width = config().width / heads;
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, heads), precise); };
    const auto row_of = [&](const Tensor& t) { return reshape(cast(t, precise), {heads, 1, width}); };
    const std::vector<Tensor> x = shifted(without_padding(input.x, input.mask), cache);
    const Tensor speed =
        cast(first_decay_, precise) + cast(matmul(tanh(decay_in_(x[0])), decay_out_), precise);
    Parts parts{heads_of(query_(x[3])), without_padding(heads_of(key_(x[1])), input.mask),
                heads_of(value_(x[2])),
                without_padding(heads_of(-exp(minimum(speed, most_fading))), input.mask)};
    show(context, "fading", [&] { return exp(parts.log_decay); });
    const Tensor own = sum(parts.query * row_of(bonus_) * parts.key, -1, true) * parts.value;
    parts.value = drop_tokens(parts.value, config().dropout, context);
    Tensor out = one_way(parts, cache ? &cache->key : nullptr) + own;
    if (!config().causal) {
      const auto reversed = [](const Tensor& t) { return flip(t, 2); };
      out = out + reversed(one_way({reversed(parts.query), reversed(parts.key), reversed(parts.value),
                                    reversed(parts.log_decay)},
                                   nullptr));
    }
    const Tensor normed = layer_norm(out, {}, {}, 1e-5 * static_cast<double>(width));
    const Tensor p = normed * row_of(gains_) + row_of(biases_);
    return output_(cast(merge_heads(p), type) * silu(gate_(x[4])));
  }

 private:
  struct Parts {
    Tensor query, key, value, log_decay;  // [B, H, N, dh]
  };

  /// r_t S_{t-1}.
  static Tensor one_way(const Parts& parts, Tensor* state) {
    const std::int64_t length = parts.query.size(2);
    const auto back = [&](const Tensor& t) { return pad(slice(t, 2, 0, length - 1), 2, 1, 0); };
    Tensor before = state ? *state : Tensor();
    const Tensor out = recurrence_output({.query = parts.query,
                                          .key = back(parts.key),
                                          .value = back(parts.value),
                                          .log_decay = back(parts.log_decay)},
                                         true, &before);
    if (state) {  // S after the last token
      const auto last = [&](const Tensor& t) { return slice(t, 2, length - 1, length); };
      *state = before * transpose(exp(last(parts.log_decay)), 2, 3) +
               matmul(transpose(last(parts.key), 2, 3), last(parts.value));
    }
    return out;
  }

  /// x'_m of all m [B, N, d].
  std::vector<Tensor> shifted(const Tensor& x, AttentionCache* cache) const {
    const Tensor difference = tokens_before(x, cache ? &cache->value : nullptr) - x;
    const Tensor inner = tanh(mix_in_(x + difference * select(mix_, 0, 0)));
    std::vector<Tensor> all;
    for (std::int64_t m = 0; m < 5; ++m) {
      const Tensor part = slice(inner, 2, m * mix_rank_, (m + 1) * mix_rank_);
      all.push_back(x + difference * (select(mix_, 0, 1 + m) + matmul(part, select(mix_out_, 0, m))));
    }
    return all;
  }

  std::int64_t mix_rank_, rank_;  // n, m
  Part<Linear> query_, key_, value_, gate_, output_, mix_in_, decay_in_;
  Tensor mix_out_, decay_out_;                   // Wm2 [5, n, d], Ww2 [m, d]
  Tensor mix_;                                   // mu_x and mu [6, d]
  Tensor first_decay_, bonus_, gains_, biases_;  // w0, u, and GroupNorm's [d]
};

}  // namespace

AttentionVariant rwkv6_variant() {
  return {
      "rwkv6",
      {.causal = true, .reason = "it mixes a token with the one before, and its state is of one sequence"},
      make_layer<Rwkv6>};
}

}  // namespace heed
