// Gated DeltaNet: "Gated delta networks: improving Mamba2 with delta rule", Yang et al. 2024, arXiv
// 2412.06464, section 3, and as its option DeltaNet: "Parallelizing linear Transformers with the
// delta rule over sequence length", Yang et al. 2024, arXiv 2406.06484. A head's state is a map
// from keys to values; a token overwrites what the map holds for its key, as far as beta says,
// after all of it has faded:
//
//   S_t = alpha_t (I - beta_t k_t^T k_t) S_{t-1} + beta_t k_t^T v_t,   o_t = q_t S_t        (eq. 10)
//   alpha_t = e^( -e^A softplus(x_t Wa + ba) ),   beta_t = sigmoid(x_t Wb)        one for each head
//   q, k = unit( silu( conv(X Wq) ) ), unit( silu( conv(X Wk) ) ),   v = silu( conv(X Wv) )
//   O = ( silu(X Wg) * merge(RMSNorm(o)) ) Wo      one vector of gains for all heads
//   DeltaNet: alpha = 1, O = merge(RMSNorm(o)) Wo
//
// unit(x) = x / sqrt(|x|^2 + 1e-6), conv is causal, of c taps (shared/short_convolution.h). In
// chunks of 32 (2406.06484, section 3, with the decays of 2412.06464, section 3.3): with c_i the
// summed up logarithms of alpha, L_ij = beta_i k_i . k_j e^(c_i - c_j) for j < i and T = (I +
// L)^-1, from the S before a chunk
//
//   v' = T (beta v - beta e^c k S),   o = e^c q S + (q k^T * e^(c_i - c_j))_{j <= i} v',
//   S <- e^{c_L} S + (e^{c_L - c} k)^T v'
//
// T comes from the inverses of blocks of 1, 2, 4, ... rows, in twice log2(32) products, which does
// not lose digits where keys are alike, as powers of L would. Decoding keeps S and c - 1 inputs of
// conv.
//
// Padded tokens write nothing, fade nothing and are 0 for conv. Dropout drops tokens from what is
// written. The authors' code scales q by 1 / sqrt(dk), which RMSNorm divides out but for its 1e-5,
// and draws e^A from U(0, 16); here e^A starts from U(1, 16), softplus(ba) from e^U(log 0.001, log
// 0.1), as theirs. Their models have dk = 3/4 and dv = 3/2 of d / H.
//
// The papers have the causal form only. Without `causal`, an extension: o is the sum of both
// directions'.
//
// Time N (dk + dv + 32) d + N d^2, memory N d, parameters (3 + 2 e) d^2.
//
// Settings: "gated" (true; false: DeltaNet); "value_width" e, that of v in that of q (1);
// "convolution" c (4).

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/recurrent_attention.h"
#include "heed/models/attention/shared/short_convolution.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

/// (I + A)^-1 of a [..., L, L], of which the part below the diagonal counts. For blocks,
/// [[P, 0], [R, Q]]^-1 = [[P^-1, 0], [-Q^-1 R P^-1, Q^-1]].
Tensor inverse_of_unit_lower(const Tensor& a) {
  const std::int64_t size = a.size(-1);
  const Tensor at = Tensor::arange(size, DType::i32, a.device());
  Tensor inverse = eye(size, a.dtype(), a.device());
  for (std::int64_t half = 1; half < size; half *= 2) {
    const Tensor block = floor(cast(at, DType::f32) / static_cast<double>(half));  // of each row
    const Tensor is_first = equal(floor(block * 0.5) * 2, block);
    const Tensor pairs = equal(unsqueeze(block, 1), unsqueeze(block, 0) + 1) * unsqueeze(is_first, 0);
    const Tensor between = where(pairs, a, 0);  // R of all blocks
    inverse = half == 1 ? inverse - between : inverse - matmul(inverse, matmul(between, inverse));
  }
  return inverse;
}

/// o of q, k [B, H, N, dk], v [B, H, N, dv], beta and log alpha [B, H, N] (undefined: 0). `state`
/// is S before the first position [B, H, dk, dv] (undefined: 0) and becomes that after the last;
/// null: not wanted.
Tensor delta_rule(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& beta,
                  const Tensor& log_decay, Tensor* state) {
  const std::int64_t length = query.size(2), size = std::min<std::int64_t>(length, 32),
                     count = ceil_div(length, size), rows = query.size(0) * query.size(1);
  const auto chunked = [&](const Tensor& x) {  // [B, H, N, n] -> [B H, chunks, L, n]
    return reshape(pad(x, 2, 0, count * size - length), {rows, count, size, x.size(3)});
  };
  const Tensor q = chunked(query), k = chunked(key), strength = chunked(unsqueeze(beta, 3)),
               written = k * strength;
  Tensor pairs = matmul(written, transpose(k, 2, 3)), seen = tril(matmul(q, transpose(k, 2, 3)));
  Tensor asking = q, removing = written, keeping = k, whole;
  if (log_decay.defined()) {
    const Tensor c = cumulative_sum(chunked(unsqueeze(log_decay, 3)), 2);  // [B H, chunks, L, 1]
    const Tensor fading = tril(exp(minimum(c - transpose(c, 2, 3), 0)));
    pairs = pairs * fading, seen = seen * fading;
    asking = q * exp(c), removing = written * exp(c);
    const Tensor last = slice(c, 2, size - 1, size);
    keeping = k * exp(last - c), whole = exp(last);
  }
  const Tensor t = inverse_of_unit_lower(pairs);
  const Tensor adding = matmul(t, chunked(value) * strength);
  removing = matmul(t, removing);

  Tensor s;  // [B H, 1, dk, dv]
  if (state && state->defined()) s = reshape(*state, {rows, 1, key.size(3), value.size(3)});
  const std::vector<std::int64_t> single(static_cast<std::size_t>(count), 1);
  const auto chunks_of = [&](const Tensor& x) {
    return x.defined() ? split(x, 1, single) : std::vector<Tensor>();
  };
  const std::vector<Tensor> u = chunks_of(adding), w = chunks_of(removing), a = chunks_of(seen),
                            e = chunks_of(asking), d = chunks_of(keeping), f = chunks_of(whole);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < u.size(); ++i) {  // [B H, 1, ...] each
    const Tensor change = s.defined() ? u[i] - matmul(w[i], s) : u[i];
    const Tensor own = matmul(a[i], change);
    outputs.push_back(s.defined() ? own + matmul(e[i], s) : own);
    const Tensor added = matmul(transpose(d[i], 2, 3), change);
    s = s.defined() ? (f.empty() ? s : s * f[i]) + added : added;
  }
  if (state) *state = reshape(s, {query.size(0), query.size(1), key.size(3), value.size(3)});
  const Tensor all = slice(reshape(concat(outputs, 1), {rows, count * size, value.size(3)}), 1, 0, length);
  return reshape(all, value.shape());
}

class GatedDeltaNet : public RecurrentAttention {
 public:
  explicit GatedDeltaNet(const AttentionConfig& config)
      : RecurrentAttention(config),
        inner_(config.options.take_integer("value_width", 1, 1, 64) * config.width),
        query_(config.width, config.width, config.bias, initialiser_),
        key_(config.width, config.width, config.bias, initialiser_),
        value_(config.width, inner_, config.bias, initialiser_),
        strength_(config.width, config.heads, config.bias, initialiser_),
        output_(inner_, config.width, config.bias, initialiser_),
        convolution_(config.options.take_integer("convolution", 4, 1, 64), 2 * config.width + inner_, false,
                     initialiser_) {
    add_module("query", query_);
    add_module("key", key_);
    add_module("value", value_);
    add_module("strength", strength_);
    add_module("output", output_);
    add_module("convolution", convolution_);
    add_parameter("norm", gains_, Initialiser::constant({inner_ / config.heads}, 1));
    if (!config.options.take_bool("gated", true)) return;
    decay_ = std::make_unique<Linear>(config.width, config.heads, false, initialiser_);
    gate_ = std::make_unique<Linear>(config.width, inner_, config.bias, initialiser_);
    add_module("decay", *decay_);
    add_module("gate", *gate_);
    add_parameter("decay_rate", rate_, first_decay_rates(config.heads, initialiser_));
    add_parameter("decay_step", step_, first_decay_steps(config.heads, initialiser_));
  }

 protected:
  /// The cache holds S in `key`, and in `value` the last inputs of the convolution.
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const std::vector<Tensor> x =
        decay_ ? Linear::each({&query_, &key_, &value_, &strength_, decay_.get(), gate_.get()}, input.x)
               : Linear::each({&query_, &key_, &value_, &strength_}, input.x);
    Parts parts{without_padding(concat({x[0], x[1], x[2]}, 2), input.mask),
                without_padding(sigmoid(cast(x[3], precise)), input.mask),
                {}};
    if (decay_) {
      const Tensor fading = softplus(cast(x[4], precise) + cast(step_, precise)) * -exp(cast(rate_, precise));
      parts.log_decay = without_padding(fading, input.mask);
      show(context, "fading", [&] { return exp(transpose(parts.log_decay, 1, 2)); });
    }
    parts.strength = drop_tokens(parts.strength, config().dropout, context);
    Tensor out = recurred(parts, cache);
    if (!config().causal) {
      const auto reversed = [](const Tensor& t) { return t.defined() ? flip(t, 1) : t; };
      out = out + flip(recurred({reversed(parts.qkv), reversed(parts.strength), reversed(parts.log_decay)},
                                nullptr),
                       2);
    }
    const Tensor normed = cast(merge_heads(rms_norm(out, cast(gains_, precise))), type);
    return output_(gate_ ? swiglu(x[5], normed) : normed);
  }

 private:
  /// The maps of x, with what padding must not do left out.
  struct Parts {
    Tensor qkv;        // [B, N, 2 d + e d]
    Tensor strength;   // beta [B, N, H]
    Tensor log_decay;  // log alpha [B, N, H]; undefined: 0
  };

  /// o [B, H, N, dv] in one direction.
  Tensor recurred(const Parts& parts, AttentionCache* cache) const {
    const std::int64_t width = config().width, heads = config().heads;
    const DType precise = statistics_type(parts.qkv.dtype());
    const Tensor qkv = silu(convolution_(parts.qkv, cache ? &cache->value : nullptr));
    const auto heads_of = [&](std::int64_t begin, std::int64_t end) {
      return cast(split_heads(contiguous(slice(qkv, 2, begin, end)), heads), precise);
    };
    const auto unit = [](const Tensor& t) { return t * rsqrt(sum(square(t), -1, true) + 1e-6); };
    const Tensor log_decay = parts.log_decay.defined() ? transpose(parts.log_decay, 1, 2) : Tensor();
    return delta_rule(unit(heads_of(0, width)), unit(heads_of(width, 2 * width)),
                      heads_of(2 * width, 2 * width + inner_), transpose(parts.strength, 1, 2), log_decay,
                      cache ? &cache->key : nullptr);
  }

  std::int64_t inner_;  // e d
  Linear query_, key_, value_, strength_, output_;
  ShortConvolution convolution_;
  Tensor gains_;                          // [dv]
  std::unique_ptr<Linear> decay_, gate_;  // null in DeltaNet
  Tensor rate_, step_;                    // A, ba [H]
};

}  // namespace

AttentionVariant gated_deltanet_variant() {
  return {"gated_deltanet",
          {.causal = true, .reason = "it overwrites what it holds from token to token of one sequence"},
          make_layer<GatedDeltaNet>};
}

}  // namespace heed
