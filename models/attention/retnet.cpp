// RetNet, retention: "Retentive network: a successor to Transformer for large language models", Sun
// et al. 2023, arXiv 2307.08621, section 2. There is no softmax. In head h, positions rotate q and
// k (the e^{i n theta} of eq. 5; models/positions.h):
//
//   S_n = gamma_h S_{n-1} + k_n^T v_n,   R_n = q_n S_n / sqrt(dh)                          (eq. 6)
//   gamma_h = 1 - 2^(-5-h)                                                                 (eq. 8)
//   i.e. R = (q k^T * D) v / sqrt(dh),   D_nm = gamma_h^(n-m) for m <= n, else 0           (eq. 5)
//   O   = ( silu(X Wg) * merge(GroupNorm(R)) ) Wo                                          (eq. 8)
//
// q, k = X Wq, X Wk have width dh per head; v = X Wv and the gate have e dh. GroupNorm normalises
// each head and position separately. It has no gains, because Wo would absorb them, and no biases,
// as in the authors' code. The state is computed token by token (core/recurrence.h), not in chunks
// (eq. 7). Decoding keeps only S, at any length.
//
// Heads are normalised by mean and variance, as in the paper; the authors' code and
// flash-linear-attention use RMS. The angles are n 10000^(-2i/dh); torchscale's are n
// 10000^(-i/(dh/2 - 1)).
//
// Padded keys are not added, but positions count them. Dropout drops tokens from S.
//
// The paper has only the causal form. Without `causal`, an extension: D_nm = gamma_h^|n-m|, from a
// recurrence in each direction.
//
// Time N e dh d + (2 + 3 e) N d^2, memory N e d, parameters (2 + 3 e) d^2. The head width must be
// even.
//
// Settings: "value_width" e, the width of the values relative to the queries (2, as in the paper).

#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

class RetNet : public RecurrentAttention {
 public:
  explicit RetNet(const AttentionConfig& config)
      : RecurrentAttention(config),
        inner_(config.options.take_integer("value_width", 2, 1, 64) * config.width),
        query_(*this, "query", config.width, config.width, config.bias, initialiser_),
        key_(*this, "key", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, inner_, config.bias, initialiser_),
        gate_(*this, "gate", config.width, inner_, config.bias, initialiser_),
        output_(*this, "output", inner_, config.width, config.bias, initialiser_),
        rotary_(rotated(config)) {}

 protected:
  /// The cache holds S in `key`.
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const Tensor& x = input.x;
    const std::int64_t begin = cache ? cache->position : 0;
    const DType precise = statistics_type(x.dtype());
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, config().heads), precise); };
    const std::vector<Tensor> projected = Linear::each({&query_, &key_, &value_, &gate_}, x);
    const Tensor q = heads_of(rotary_(projected[0], begin));
    Tensor k = heads_of(rotary_(projected[1], begin));
    k = without_padding(k / std::sqrt(static_cast<double>(k.size(3))), input.mask);
    const Tensor v = drop_tokens(heads_of(projected[2]), config().dropout, context);
    const Tensor log_decay = expand(decay(x.size(1), q), {x.size(0), config().heads, x.size(1)});

    const Tensor sums = recurrence_output({.query = q, .key = k, .value = v, .log_decay = log_decay},
                                          config().causal, cache ? &cache->key : nullptr);
    if (cache) cache->position += x.size(1);
    show(context, "retention", [&] { return retention(q, k); });
    const Tensor normed = reshape(layer_norm(transpose(sums, 1, 2), {}, {}), projected[3].shape());
    return output_(swiglu(projected[3], cast(normed, x.dtype())));
  }

 private:
  static AttentionConfig rotated(AttentionConfig config) {
    config.rotary = true;
    return config;
  }

  /// log gamma_h at every position, [1, H, N].
  Tensor decay(std::int64_t length, const Tensor& like) const {
    std::vector<double> logs;
    for (std::int64_t h = 0; h < config().heads; ++h)
      logs.push_back(std::log1p(-std::exp2(-5 - static_cast<double>(h))));
    return expand(tensor_of(logs, {1, config().heads, 1}, like.dtype(), like.device()),
                  {1, config().heads, length});
  }

  /// q k^T * D, [B, H, N, N].
  Tensor retention(const Tensor& q, const Tensor& k) const {
    const Tensor at = cast(Tensor::arange(q.size(2), DType::i32, q.device()), q.dtype());
    const Tensor distance = abs(unsqueeze(at, 1) - unsqueeze(at, 0));
    const Tensor d = exp(unsqueeze(decay(1, q), 3) * distance);
    const Tensor all = matmul(q, transpose(k, 2, 3)) * d;
    return config().causal ? tril(all) : all;
  }

  std::int64_t inner_;  // e d
  Part<Linear> query_, key_, value_, gate_, output_;
  Rotary rotary_;
};

}  // namespace

AttentionVariant retnet_variant() {
  return {"retnet",
          {.causal = true,
           .reason = "what it retains fades with the distance, and a memory's positions are not the query's"},
          make_layer<RetNet>};
}

}  // namespace heed
