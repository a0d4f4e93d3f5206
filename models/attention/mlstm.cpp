// mLSTM, the matrix memory of xLSTM: "xLSTM: extended long short-term memory", Beck et al. 2024, arXiv
// 2405.04517, section 2.3. A head's memory maps keys to values. Each token fades it by its forget gate
// and writes by its input gate, an exponential, so it can outweigh all earlier tokens:
//
//   C_t = f_t C_{t-1} + i_t k_t^T v_t,   n_t = f_t n_{t-1} + i_t k_t^T             (eq. 19, 20)
//   h_t = q_t C_t / max( |q_t n_t|, 1 )                                                  (eq. 21)
//   i_t = e^(x_t wi + bi),   f_t = sigmoid(x_t wf + bf),   k_t = x_t Wk / sqrt(dh)    (eq. 23, 25, 26)
//   O   = ( sigmoid(X Wg) * merge(LayerNorm(h)) ) Wo                                     (eq. 27)
//
// For any i, all is computed from C and n divided by e^m, with m_t = max(log f_t + m_{t-1}, log i_t, 0)
// (eq. 15 - 17). Its 0, an addition, keeps e^-m at most 1. The paper leaves f a choice of sigmoid or
// exponential; the authors' code has the former, and the LayerNorm of each head, with gains. The memory
// uses core/recurrence.h. Decoding keeps C, n and m, at any length.
//
// Departures: the authors' blocks wrap this in an up-projection, a convolution and a skip; here the
// block is heed's, as in their 7B model (arXiv 2503.13427). bf starts from 3 to 6 over the heads and
// bi from N(0, 0.01), as theirs; wi and wf start as elsewhere, theirs from 0.
//
// Padded tokens write nothing and fade nothing. Dropout drops tokens from C. The paper has only the
// causal form. Without `causal`, an extension: h is the sum of both directions.
//
// Time N dh d + N d^2, memory N d, parameters 5 d^2 + 2 H d. No settings.

#include <algorithm>
#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class Mlstm : public RecurrentAttention {
 public:
  explicit Mlstm(const AttentionConfig& config)
      : RecurrentAttention(config),
        query_(*this, "query", config.width, config.width, config.bias, initialiser_),
        key_(*this, "key", config.width, config.width, config.bias, initialiser_),
        value_(*this, "value", config.width, config.width, config.bias, initialiser_),
        gate_(*this, "gate", config.width, config.width, config.bias, initialiser_),
        input_(*this, "input", config.width, config.heads, false, initialiser_),
        forget_(*this, "forget", config.width, config.heads, false, initialiser_),
        output_(*this, "output", config.width, config.width, config.bias, initialiser_) {
    add_parameter("first_input", first_input_, initialiser_.normal({config.heads}, 0.1));
    const auto last = static_cast<double>(std::max<std::int64_t>(config.heads - 1, 1));
    add_parameter("first_forget", first_forget_, first_values({config.heads}, [&](auto n) {
                    return 3 + 3 * static_cast<double>(n) / last;
                  }));
    add_parameter("norm", gains_, Initialiser::constant({config.width / config.heads}, 1));
  }

 protected:
  /// The cache holds C with n as its last column, divided by e^m, in `key` [B, H, dh, dh + 1], and m
  /// in `value` [B, H, 1].
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const DType type = input.x.dtype(), precise = statistics_type(type);
    const std::vector<Tensor> x = Linear::each({&query_, &key_, &value_, &gate_, &input_, &forget_}, input.x);
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, config().heads), precise); };
    const auto by_head = [&](const Tensor& log_gate) {  // [B, H, N]
      return transpose(without_padding(log_gate, input.mask), 1, 2);
    };
    const Tensor log_forget = by_head(-softplus(-(cast(x[5], precise) + cast(first_forget_, precise))));
    show(context, "fading", [&] { return exp(log_forget); });
    const Tensor key = heads_of(x[1]);
    const Tensor values = drop_tokens(heads_of(x[2]), config().dropout, context);
    const Parts parts{
        heads_of(x[0]), without_padding(key / std::sqrt(static_cast<double>(key.size(3))), input.mask),
        pad(values, 3, 0, 1, 1), by_head(cast(x[4], precise) + cast(first_input_, precise)), log_forget};
    Tensor out = one_way(parts, cache);
    if (!config().causal) {
      const auto reversed = [](const Tensor& t) { return flip(t, 2); };
      out = out + reversed(one_way({reversed(parts.query), reversed(parts.key), reversed(parts.value),
                                    reversed(parts.log_input), reversed(parts.log_forget)},
                                   nullptr));
    }
    const Tensor normed = layer_norm(out, cast(gains_, precise), {});
    return output_(sigmoid(x[3]) * cast(merge_heads(normed), type));
  }

 private:
  struct Parts {
    Tensor query, key, value;      // [B, H, N, dh], the last with a column of ones
    Tensor log_input, log_forget;  // [B, H, N]
  };

  /// h [B, H, N, dh].
  static Tensor one_way(const Parts& parts, AttentionCache* cache) {
    const std::int64_t length = parts.query.size(2), width = parts.query.size(3);
    const bool continues = cache && cache->value.defined();
    const Tensor m = scales(parts, continues ? cache->value : Tensor());
    const Tensor first =
        continues ? cache->value : Tensor::zeros({m.size(0), m.size(1), 1}, m.dtype(), m.device());
    const Tensor before = concat({first, slice(m, 2, 0, length - 1)}, 2);
    const Tensor log_decay = parts.log_forget + before - m;  // at most 0 but for rounding
    const Tensor read = recurrence_output({.query = parts.query,
                                           .key = parts.key * unsqueeze(exp(parts.log_input - m), 3),
                                           .value = parts.value,
                                           .log_decay = log_decay - relu(log_decay.detach())},
                                          true, cache ? &cache->key : nullptr);
    if (cache) cache->value = slice(m, 2, length - 1, length);
    const Tensor least = unsqueeze(maximum(exp(-m), 1e-30), 3);
    return slice(read, 3, 0, width) / maximum(abs(slice(read, 3, width, width + 1)), least);
  }

  /// m [B, H, N], after `first` [B, H, 1] (undefined: 0), in log N steps: after each, `m` and `fading`
  /// of a token cover twice as many tokens before it. It cancels, so it has no gradient.
  static Tensor scales(const Parts& parts, const Tensor& first) {
    Tensor m = maximum(parts.log_input.detach(), 0), fading = parts.log_forget.detach();
    const std::int64_t length = m.size(2);
    for (std::int64_t step = 1; step < length; step *= 2) {
      const auto back = [&](const Tensor& t, double value) {
        return pad(slice(t, 2, 0, length - step), 2, step, 0, value);
      };
      m = maximum(m, back(m, 0) + fading);
      fading = fading + back(fading, 0);
    }
    return first.defined() ? maximum(m, first + fading) : m;
  }

  Part<Linear> query_, key_, value_, gate_, input_, forget_, output_;
  Tensor first_input_, first_forget_;  // bi, bf [H]
  Tensor gains_;                       // [dh]
};

}  // namespace

AttentionVariant mlstm_variant() {
  return {"mlstm",
          {.causal = true, .reason = "its memory fades from token to token of one sequence"},
          make_layer<Mlstm>};
}

}  // namespace heed
