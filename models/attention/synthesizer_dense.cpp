// Dense Synthesizer: "Synthesizer: Rethinking Self-Attention for Transformer Models", Tay, Bahri, Metzler,
// Juan, Zhao and Zheng 2021, arXiv 2005.00743 v3, section 3.1. A token says by itself, without looking at the
// others, how much it wants of each position; df is the hidden width:
//
//   hid_i   = ReLU( W1_h x_i + b1_h )                     [B, H, N, df]
//   S[i, j] = hid_i . W2_h[:, j] + b2_h[j],   j < N       (eq. 1)
//   Y_h     = softmax( S_h(X) ) v_h,   O = merge(Y) Wo    (eq. 2, in synthesizer_logits.cpp)
//
// S is a product, so the fused attention kernel makes it on its way with W2 in the place of the keys.
// Time N d H df + N^2 (H df + d) + N d^2, memory N d (fused). Parameters 2 d^2 + H (d df + df L) for
// L = max_length.
//
// Settings: hidden (df, default d / H), share_w2 (false; true: one W2 for all heads, as the released code has
// it), logit_bias (b1 and b2; default as the projections). Departure: the paper counts df = d for one head;
// d / H per head keeps the cost of d^2. Longer inputs than L are an error, shorter ones use first columns.

#include "heed/autograd/ops.h"
#include "heed/models/attention/synthesizer_logits.h"

namespace heed {
namespace {

class DenseLogits : public SynthesizerLogits {
 public:
  DenseLogits(const AttentionConfig& config, Initialiser& initialiser) : heads_(config.heads) {
    const std::int64_t hidden = take_hidden_width(config), length = config.max_length;
    const std::int64_t sets = config.options.take_bool("share_w2", false) ? 1 : config.heads;
    add_parameter("W1", w1_, xavier_per_head(config.heads, config.width, hidden, initialiser));
    add_parameter("W2", w2_, xavier_per_head(sets, hidden, length, initialiser));
    if (!take_logit_bias(config)) return;
    add_parameter("b1", b1_, Initialiser::constant({config.heads, hidden}, 0));
    add_parameter("b2", b2_, Initialiser::constant({sets, length}, 0));
  }

  LogitFactors factors(const Tensor& x, std::int64_t first) const override {
    const std::int64_t batch = x.size(0), length = x.size(1);
    Tensor hid = relu(linear_per_head(slice(x, 1, first, length), w1_, b1_));  // [B, H, n, df]
    Tensor columns = transpose(slice(w2_, 2, 0, length), 1, 2);                // [H or 1, N, df]
    if (b2_.defined()) {  // the bias is one more column, of a hidden unit that is always 1
      hid = concat({hid, Tensor::ones({batch, heads_, length - first, 1}, x.dtype(), x.device())}, 3);
      columns = concat({columns, unsqueeze(slice(b2_, 1, 0, length), 2)}, 2);
    }
    return {hid, unsqueeze(columns, 0)};
  }

 private:
  std::int64_t heads_;
  Tensor w1_, b1_;  // [H, d, df], [H, df]
  Tensor w2_, b2_;  // [H, df, L], [H, L]; H = 1 when shared
};

}  // namespace

LogitsPtr make_dense_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<DenseLogits>(config, initialiser);
}

AttentionVariant synthesizer_dense_variant() {
  return {"synthesizer_dense", synthesizer_capabilities(), [](const AttentionConfig& config) {
            return make_synthesizer("synthesizer_dense", config, make_dense_logits);
          }};
}

}  // namespace heed
