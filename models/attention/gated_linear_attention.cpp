// Gated linear attention: "Gated linear attention Transformers with hardware-efficient training",
// Yang et al. 2023, arXiv 2312.06635, section 4. A head's state fades at a rate that each token
// sets for each feature of the keys:
//
//   S_t = diag(alpha_t) S_{t-1} + k_t^T v_t,   o_t = q_t S_t / sqrt(dk)                    (eq. 3)
//   alpha_t = sigmoid( x_t Wa1 Wa2 + ba )^(1 / tau)     Wa1 [d, 16], tau = 16        (section 4.4)
//   O = ( silu(X Wr + br) * merge(LayerNorm(o)) ) Wo    each head normalised separately
//
// q, k = split(X Wq), split(X Wk) are half as wide as v = split(X Wv): dk = dh / 2. The state is
// computed token by token (core/recurrence.h), so alpha may be arbitrarily small. Decoding keeps
// only S, at any length.
//
// The LayerNorm has no gains, because Wo would absorb them, and no biases; flash-linear-attention
// normalises by RMS, with gains. Padded positions neither add nor fade anything. Dropout drops
// tokens from S.
//
// The paper has only the causal form. Without `causal`, an extension: a recurrence in each
// direction.
//
// Time N dk d + 4 N d^2, memory N d, parameters 4 d^2 and about 25 d.
//
// Settings: "gate_rank" (16); "temperature" tau (16): higher values fade more slowly.

#include <algorithm>
#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class GatedLinearAttention : public RecurrentAttention {
 public:
  explicit GatedLinearAttention(const AttentionConfig& config)
      : RecurrentAttention(config),
        rank_(config.options.take_integer("gate_rank", 16, 1, most_units)),
        temperature_(config.options.take_number("temperature", 16, 1, 1e6)),
        key_width_(std::max<std::int64_t>(config.width / config.heads / 2, 1) * config.heads),
        query_(*this, "query", config.width, key_width_, config.bias, initialiser_),
        key_(*this, "key", config.width, key_width_, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        gate_(*this, "gate", config.width, config.width, true, initialiser_),
        fade_in_(*this, "fade_in", config.width, rank_, false, initialiser_),
        fade_out_(*this, "fade_out", rank_, key_width_, true, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_) {}

 protected:
  /// The cache holds S in `key`.
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const Tensor& x = input.x;
    const DType precise = statistics_type(x.dtype());
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, config().heads), precise); };
    const std::vector<Tensor> projected = Linear::each({&query_, &key_, &value_, &gate_, &fade_in_}, x);
    const Tensor q = heads_of(projected[0]);
    Tensor k = heads_of(projected[1]);
    k = without_padding(k / std::sqrt(static_cast<double>(k.size(3))), input.mask);
    const Tensor v = drop_tokens(heads_of(projected[2]), config().dropout, context);
    // log sigmoid(z) = -log(1 + e^-z)
    const Tensor log_decay =
        without_padding(softplus(-heads_of(fade_out_(projected[4]))) / -temperature_, input.mask);
    show(context, "fading", [&] { return exp(log_decay); });
    const Tensor sums = recurrence_output({.query = q, .key = k, .value = v, .log_decay = log_decay},
                                          config().causal, cache ? &cache->key : nullptr);
    const Tensor normed = reshape(layer_norm(transpose(sums, 1, 2), {}, {}), x.shape());
    return output_(swiglu(projected[3], cast(normed, x.dtype())));
  }

 private:
  std::int64_t rank_;
  double temperature_;
  std::int64_t key_width_;  // H dk
  Part<Linear> query_, key_, value_, gate_, fade_in_, fade_out_, output_;
};

}  // namespace

AttentionVariant gated_linear_attention_variant() {
  return {"gated_linear_attention",
          {.causal = true, .reason = "what it sums up fades from token to token of one sequence"},
          make_layer<GatedLinearAttention>};
}

}  // namespace heed
