// HGRN2: "HGRN2: gated linear RNNs with state expansion", Qin et al. 2024, arXiv 2404.07904, section
// 3. Gated linear attention (gated_linear_attention.cpp) in which what a feature of the keys forgets
// is what it takes in, so the keys need no map:
//
//   S_t = diag(f_t) S_{t-1} + (1 - f_t)^T v_t,   o_t = q_t S_t
//   f_t = gamma + (1 - gamma) sigmoid(x_t Wf),   q_t = silu(x_t Wq),   v_t = x_t Wv
//   O   = RMSNorm(merge(o)) Wo                               with gains, over all heads together
//
// The lower bounds gamma [d] keep upper layers from forgetting at once; the first layer has none.
// The state is computed token by token (core/recurrence.h). Decoding keeps only S, at any length.
//
// The activations of q and v and the norm follow flash-linear-attention; the authors' hgru2-pytorch
// has a sigmoid for q, silu for v and LayerNorm. Departures: the paper makes gamma of all layers from
// sums of one softmax over the layers. Here a layer l = 0, 1, ... has its own, gamma = sigmoid(g),
// from l / (l + 1): the paper's first value in the last layer, a higher one than the paper's below.
// Their q is scaled by 1 / sqrt(dk), which RMSNorm cancels.
//
// Padded positions neither add nor fade anything. Dropout drops tokens from S. The paper has only the
// causal form. Without `causal`, an extension: a recurrence in each direction.
//
// Time N dh d + N d^2, memory N d, parameters 4 d^2. No settings.

#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class Hgrn2 : public RecurrentAttention {
 public:
  explicit Hgrn2(const AttentionConfig& config)
      : RecurrentAttention(config),
        query_(*this, "query", config.width, config.width, config.bias, initialiser_),
        forget_(*this, "forget", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_) {
    if (config.layer > 0)
      add_parameter("bound", bound_, Initialiser::constant({config.width}, std::log(config.layer)));
    add_parameter("norm", gains_, Initialiser::constant({config.width}, 1));
  }

 protected:
  /// The cache holds S in `key`.
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const std::vector<Tensor> x = Linear::each({&query_, &forget_, &value_}, input.x);
    const auto heads_of = [&](const Tensor& t) { return split_heads(cast(t, precise), config().heads); };
    const Tensor z = cast(x[1], precise);
    Tensor log_forget = -softplus(-z), taken = sigmoid(-z);
    if (bound_.defined()) {  // log f = log(1 + gamma e^-z) - log(1 + e^-z)
      const Tensor g = cast(bound_, precise);
      log_forget = softplus(-softplus(-g) - z) + log_forget;
      taken = sigmoid(-g) * taken;
    }
    const Tensor log_decay = heads_of(without_padding(log_forget, input.mask));
    show(context, "fading", [&] { return exp(log_decay); });
    const Tensor sums = recurrence_output({.query = heads_of(silu(x[0])),
                                           .key = heads_of(without_padding(taken, input.mask)),
                                           .value = drop_tokens(heads_of(x[2]), config().dropout, context),
                                           .log_decay = log_decay},
                                          config().causal, cache ? &cache->key : nullptr);
    return output_(cast(rms_norm(merge_heads(sums), cast(gains_, precise)), type));
  }

 private:
  Part<Linear> query_, forget_, value_, output_;
  Tensor bound_;  // g [d]; undefined: gamma = 0
  Tensor gains_;  // [d]
};

}  // namespace

AttentionVariant hgrn2_variant() {
  return {"hgrn2",
          {.causal = true, .reason = "what it sums up fades from token to token of one sequence"},
          make_layer<Hgrn2>};
}

}  // namespace heed
