// Gated slot attention: "Gated slot attention for efficient linear-time sequence modeling", Zhang et
// al. 2024, arXiv 2409.07146, section 3. ABC (abc.cpp) with slots that forget: each token fades every
// slot of a head and writes its key and value into it to the same extent, and queries attend to the
// slots.
//
//   K~_t = diag(alpha_t) K~_{t-1} + (1 - alpha_t)^T k_t,   V~_t likewise with v_t        n slots
//   o_t  = softmax( q_t K~_t^T ) V~_t,   alpha_t = sigmoid(x_t Wa)^(1 / tau)
//   q, k, v = silu(X Wq), silu(X Wk), silu(X Wv),   O = RMSNorm( silu(merge(o)) ) Wo
//
// RMSNorm has gains and spans all heads; it and the activations follow the authors' code, in
// flash-linear-attention. Decoding keeps K~ and V~, at any length. V~ uses core/recurrence.h. Its
// decays act on the side that queries read, those of K~ on the other, so q K~^T is computed in chunks
// of C tokens: e^(L_t - L_i) with L the sums of log alpha in the chunk, whose exponents are never
// positive, and K~ before the chunk.
//
// Padded tokens write nothing and fade nothing. Dropout acts on the weights of the slots. The paper
// has only the causal form. Without `causal`, an extension: o is the sum of both directions.
//
// Time N n (d + H C) + N d^2, memory N (H C n + d), parameters 4 d^2 + H n d, C = 16.
//
// Settings: "slots" n (the head width); "temperature" tau (8): higher values fade more slowly.

#include <algorithm>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

constexpr std::int64_t chunk_of_slots = 16;  // C

class GatedSlots : public RecurrentAttention {
 public:
  explicit GatedSlots(const AttentionConfig& config)
      : RecurrentAttention(config),
        slots_(config.options.take_integer("slots", config.width / config.heads, 1, 4096)),
        temperature_(config.options.take_number("temperature", 8, 1, 1e6)),
        query_(*this, "query", config.width, config.width, config.bias, initialiser_),
        key_(*this, "key", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        control_(*this, "control", config.width, config.heads * slots_, config.bias, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_) {
    add_parameter("norm", gains_, Initialiser::constant({config.width}, 1));
  }

 protected:
  /// The cache holds K~ [B, H, n, dh] in `key` and V~ in `value`.
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const std::vector<Tensor> x = Linear::each({&query_, &key_, &value_, &control_}, input.x);
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, config().heads), precise); };
    const Tensor log_alpha = without_padding(softplus(-heads_of(x[3])) / -temperature_, input.mask);
    show(context, "fading", [&] { return exp(log_alpha); });
    const Parts parts{heads_of(silu(x[0])), heads_of(silu(x[1])), heads_of(silu(x[2])), -expm1(log_alpha),
                      log_alpha};
    Tensor out = one_way(parts, cache, context);
    if (!config().causal) {
      const auto reversed = [](const Tensor& t) { return flip(t, 2); };
      const Parts back{reversed(parts.query), reversed(parts.key), reversed(parts.value),
                       reversed(parts.written), reversed(parts.log_alpha)};
      out = out + reversed(one_way(back, nullptr, context));
    }
    return output_(cast(rms_norm(silu(merge_heads(out)), cast(gains_, precise)), type));
  }

 private:
  struct Parts {
    Tensor query, key, value;   // [B, H, N, dh]
    Tensor written, log_alpha;  // 1 - alpha and log alpha [B, H, N, n], 0 at padding
  };

  Tensor one_way(const Parts& parts, AttentionCache* cache, Context& context) const {
    const Tensor weights = softmax(logits(parts, cache ? &cache->key : nullptr));
    return recurrence_output({.query = maybe_dropout(weights, config().dropout, context),
                              .key = parts.written,
                              .value = parts.value,
                              .log_decay = parts.log_alpha},
                             true, cache ? &cache->value : nullptr);
  }

  /// q K~^T [B, H, N, n] with K~ from `*state` (undefined or null: 0), which becomes the last.
  static Tensor logits(const Parts& parts, Tensor* state) {
    const std::int64_t batch = parts.query.size(0), heads = parts.query.size(1), length = parts.query.size(2),
                       chunk = std::min(chunk_of_slots, length), count = ceil_div(length, chunk);
    const auto chunked = [&](const Tensor& t) {  // [B, H, N / C, C, ...]
      return reshape(pad(t, 2, 0, count * chunk - length), {batch, heads, count, chunk, t.size(3)});
    };
    const Tensor query = chunked(parts.query), key = chunked(parts.key), written = chunked(parts.written),
                 sums = cumulative_sum(chunked(parts.log_alpha), 3);
    const Tensor ends = slice(sums, 3, chunk - 1, chunk);                            // [B, H, N / C, 1, n]
    const Tensor fading = exp(minimum(unsqueeze(sums, 4) - unsqueeze(sums, 3), 0));  // [.., t, i, n]
    const Tensor within =
        matmul(unsqueeze(tril(matmul(query, transpose(key, 3, 4))), 4), fading * unsqueeze(written, 3));
    const Tensor added = matmul(transpose(written * exp(ends - sums), 3, 4), key);  // [.., n, dh]
    const std::vector<std::int64_t> each(static_cast<std::size_t>(count), 1);
    const std::vector<Tensor> kept = split(transpose(exp(ends), 3, 4), 2, each), more = split(added, 2, each);
    Tensor before = state && state->defined() ? unsqueeze(*state, 2) : more[0] * 0;
    std::vector<Tensor> all;
    for (std::size_t c = 0; c < each.size(); ++c) {
      all.push_back(before);
      before = before * kept[c] + more[c];
    }
    if (state) *state = squeeze(before, 2);
    const Tensor earlier = matmul(query, transpose(concat(all, 2), 3, 4)) * exp(sums);
    const Tensor both = reshape(squeeze(within, 4) + earlier, {batch, heads, count * chunk, sums.size(4)});
    return slice(both, 2, 0, length);
  }

  std::int64_t slots_;  // n
  double temperature_;
  Part<Linear> query_, key_, value_, control_, output_;
  Tensor gains_;  // [d]
};

}  // namespace

AttentionVariant gated_slot_variant() {
  return {"gated_slot",
          {.causal = true, .reason = "its slots fade from token to token of one sequence"},
          make_layer<GatedSlots>};
}

}  // namespace heed
