// RWKV-7, time mixing: "RWKV-7 'Goose' with expressive dynamic state evolution", Peng et al. 2025,
// arXiv 2503.14456, section 4.1. Every token mixes with the previous one. A head's state maps keys
// to values. A token removes the value at its removal key, at learned rates, and adds its own value
// at another key:
//
//   x'_m = x_t + mu_m * (x_{t-1} - x_t)         for m = r, w, k, v, a, g                   (eq. 3)
//   r, k, v = x'_r Wr, x'_k Wk, x'_v Wv
//   w = e^( -e^-0.5 sigmoid(w0 + tanh(x'_w Ww1) Ww2) )    decay of each key feature       (eq. 12)
//   a = sigmoid(a0 + x'_a Wa1 Wa2)                        in-context learning rate         (eq. 4)
//   g = sigmoid(x'_g Wg1) Wg2                             gate
//   kappa = unit(k * xi),   k~ = k * (1 + alpha (a - 1))  removal, replacement key  (eq. 6, 7, 15)
//   S_t = (diag(w) - (a * kappa)^T kappa) S_{t-1} + k~^T v                            (eq. 16, 17)
//   p   = GroupNorm(r S_t) + (r . (rho * k~)) v           a group is a head       (eq. 19, 20, 21)
//   O   = ( merge(p) * g ) Wo                                                             (eq. 22)
//
// S has keys as rows; the paper writes its transpose. unit(x) is x / |x|. GroupNorm has gains and
// biases, and adds 1e-5 dh. The state uses core/recurrence.h, where the key reads the state after
// it has faded, so kappa / w replaces kappa. Decoding keeps S and the last x.
//
// Departures: from the second layer on, the paper mixes v with that of the first layer (eq. 9).
// Here layers have only their own v. Its channel mixing corresponds to a feed-forward layer. mu, w0, a0, xi,
// alpha and rho start as in the first layer of the authors' code, at any depth; GroupNorm's gains
// start from 1, theirs from ((layer + 1) / layers)^0.7. Matrices start as elsewhere in heed; theirs
// start with Wo, Ww1, Wa1 and Wg1 at 0. The maps to r, k, v and O have biases if projections do; the
// paper's have none.
//
// A padded token counts as 0 for the next token, and writes, removes and fades nothing. Dropout
// drops tokens from what is added. The paper has only the causal form. Without `causal`, an
// extension: r S is the sum of both directions, and tokens still mix with the previous one.
//
// Time N dh d + N d^2, memory N d, parameters 4 d^2 + 4 n d + 2 m d.
//
// Settings: "rank" n of the maps of w and a, "gate_rank" m of the map of g (0: as in
// flash-linear-attention, 2.5 sqrt(d) dh / 64 and 5 sqrt(d), in steps of 32).

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/sorting.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class Rwkv7 : public RecurrentAttention {
 public:
  explicit Rwkv7(const AttentionConfig& config)
      : RecurrentAttention(config),
        rank_(read_rank(config, "rank", 2.5 * read_head_width(config) / 64)),
        gate_rank_(read_rank(config, "gate_rank", 5)),
        query_(*this, "query", config.width, config.width, config.bias, initialiser_),
        key_(*this, "key", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_),
        decay_in_(*this, "decay_in", config.width, rank_, false, initialiser_),
        decay_out_(*this, "decay_out", rank_, config.width, false, initialiser_),
        rate_in_(*this, "rate_in", config.width, rank_, false, initialiser_),
        rate_out_(*this, "rate_out", rank_, config.width, false, initialiser_),
        gate_in_(*this, "gate_in", config.width, gate_rank_, false, initialiser_),
        gate_out_(*this, "gate_out", gate_rank_, config.width, false, initialiser_) {
    add_first_values(config.width, config.width / config.heads);
    add_parameter("norm", gains_, Initialiser::constant({config.width}, 1));
    add_parameter("norm_bias", biases_, Initialiser::constant({config.width}, 0));
  }

 protected:
  /// The cache holds S in `key`, and in `value` the last x [B, 1, d].
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const std::int64_t heads = config().heads, width = config().width / heads;
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, heads), precise); };
    const auto row_of = [&](const Tensor& t) {  // [d] -> [H, 1, dh]
      return reshape(cast(t, precise), {heads, 1, width});
    };
    const std::vector<Tensor> x = shifted(input, cache);
    const Tensor logits = decay_out_(tanh(decay_in_(x[1])));
    const Tensor log_w = without_padding(
        heads_of(sigmoid(cast(logits, precise) + cast(first_decay_, precise))) * -std::exp(-0.5), input.mask);
    const Tensor a = without_padding(
        heads_of(sigmoid(cast(rate_out_(rate_in_(x[4])), precise) + cast(first_rate_, precise))), input.mask);
    const Tensor r = heads_of(query_(x[0])), k = heads_of(key_(x[2])),
                 v = without_padding(heads_of(value_(x[3])), input.mask);
    show(context, "fading", [&] { return exp(log_w); });
    const Tensor kappa = unit_vectors(k * row_of(removal_));
    const Tensor replacing = k * ((a - 1) * row_of(replacement_) + 1);
    const Tensor out = recurrence_output({.query = r,
                                          .key = replacing,
                                          .value = drop_tokens(v, config().dropout, context),
                                          .log_decay = log_w,
                                          .reading = kappa * exp(-log_w),
                                          .writing = kappa * a},
                                         config().causal, cache ? &cache->key : nullptr);
    const Tensor normed = layer_norm(out, {}, {}, 1e-5 * static_cast<double>(width));
    const Tensor p =
        normed * row_of(gains_) + row_of(biases_) + sum(r * row_of(bonus_) * replacing, -1, true) * v;
    return output_(cast(merge_heads(p), type) * gate_out_(sigmoid(gate_in_(x[5]))));
  }

 private:
  static double read_head_width(const AttentionConfig& config) {
    const std::int64_t head_width = config.width / config.heads;
    return static_cast<double>(head_width);
  }

  static std::int64_t read_rank(const AttentionConfig& config, const char* name, double of_root) {
    const std::int64_t given = config.options.take_integer(name, 0, 0, most_units);
    const double usual = of_root * std::sqrt(static_cast<double>(config.width));
    return given > 0 ? given : std::max<std::int64_t>(32, 32 * std::lrint(usual / 32));
  }

  /// mu, w0, a0, xi, alpha and rho, as functions of a feature's place i from 0 to 1, and of its
  /// place in its head from -1 to 1.
  void add_first_values(std::int64_t width, std::int64_t head_width) {
    const auto row = [&](const std::function<double(double i, double bent)>& value) {
      return first_values({width}, [&](std::int64_t n) {
        const auto share = [](std::int64_t at, std::int64_t count) {
          return static_cast<double>(at) / static_cast<double>(std::max<std::int64_t>(count - 1, 1));
        };
        const double within = 2 * share(n % head_width, head_width) - 1;
        return value(share(n, width), within * std::abs(within));
      });
    };
    std::vector<Tensor> mixes;
    const double beside = static_cast<double>(width - 1) / static_cast<double>(width);
    for (const double power : {0.2, 0.9, 0.7, 0.7, 0.9, 0.2})
      mixes.push_back(row([&](double i, double) { return 1 - std::pow(i * beside, power); }));
    add_parameter("mix", mix_, ShapesOnly::active() ? ShapesOnly::tensor({6, width}) : stack(mixes, 0));
    add_parameter("first_decay", first_decay_,
                  row([](double i, double bent) { return -5.5 + 6 * i + 2.5 * bent; }));
    add_parameter("first_rate", first_rate_,
                  row([](double i, double bent) { return -0.19 + 0.3 * bent + 0.4 * (i - 0.5); }));
    add_parameter("removal", removal_, row([](double i, double) { return 0.71 - 0.1 * (i - 0.5); }));
    add_parameter("replacement", replacement_, Initialiser::constant({width}, 1.02));
    add_parameter("bonus", bonus_, Initialiser::constant({width}, -0.04));
  }

  /// x'_m of all m [B, N, d].
  std::vector<Tensor> shifted(const AttentionInput& input, AttentionCache* cache) const {
    const Tensor x = without_padding(input.x, input.mask);
    const Tensor difference = tokens_before(x, cache ? &cache->value : nullptr) - x;
    std::vector<Tensor> all;
    for (std::int64_t m = 0; m < 6; ++m) all.push_back(x + difference * select(mix_, 0, m));
    return all;
  }

  std::int64_t rank_, gate_rank_;  // n, m
  Part<Linear> query_, key_, value_, output_;
  Part<Linear> decay_in_, decay_out_, rate_in_, rate_out_, gate_in_, gate_out_;
  Tensor mix_;                                             // mu [6, d]
  Tensor first_decay_, first_rate_;                        // w0, a0 [d]
  Tensor removal_, replacement_, bonus_, gains_, biases_;  // xi, alpha, rho, and GroupNorm's [d]
};

}  // namespace

AttentionVariant rwkv7_variant() {
  return {
      "rwkv7",
      {.causal = true, .reason = "it mixes a token with the one before, and its state is of one sequence"},
      make_layer<Rwkv7>};
}

}  // namespace heed
