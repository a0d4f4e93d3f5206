// Factorized Dense Synthesizer: "Synthesizer: Rethinking Self-Attention for Transformer Models", Tay, Bahri,
// Metzler, Juan, Zhao and Zheng 2021, arXiv 2005.00743 v3, section 3.3. A token makes two short vectors, of
// lengths a and b with a b >= L = max_length, which are stretched to the sequence's length and multiplied:
//
//   hid_i   = ReLU( W1_h x_i + b1_h )                                     [B, H, N, df]
//   A_i     = WA_h hid_i + bA_h,   B_i = WB_h hid_i + bB_h                [B, H, N, a], [B, H, N, b]
//   S[i, n] = A_i[n mod a] B_i[n mod b]       tiling "tile"               [B, H, N, N]   (eq. 5)
//           = A_i[n div b] B_i[n mod b]       tiling "outer" (an extension)
//   Y_h     = softmax( S_h(X) ) v_h,   O = merge(Y) Wo                    (eq. 2, in synthesizer_logits.cpp)
//
// "tile" repeats itself after lcm(a, b) positions: with a common divisor of a and b, such as a = b = 16, some
// positions always get the same logit. It is allowed; the default b has none with a.
// Time N d H df + N H df (a + b) + N^2 d + N d^2; S is made for some rows at a time, and again backward.
// Parameters 2 d^2 + H df (d + a + b).
//
// Settings: tiling ("tile"), a (default about sqrt(L)), b (about L / a), hidden (df, default d / H),
// logit_bias (b1, bA and bB; default as the projections). Longer inputs than L are an error.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heed/autograd/ops.h"
#include "heed/core/checked.h"
#include "heed/models/attention/synthesizer_logits.h"

namespace heed {
namespace {

/// The smallest b with a b >= length, and for tiles without a common divisor with a.
std::int64_t second_length(std::int64_t a, std::int64_t length, bool outer) {
  std::int64_t b = ceil_div(length, a);
  while (!outer && std::gcd(a, b) > 1) ++b;
  return b;
}

/// x [B, H, n, a] repeated along the last axis: [B, H, n, length].
Tensor tiled(const Tensor& x, std::int64_t length) {
  const std::int64_t a = x.size(3), times = ceil_div(length, a);
  const Tensor copies = expand(unsqueeze(x, 3), {x.size(0), x.size(1), x.size(2), times, a});
  return slice(reshape(copies, {x.size(0), x.size(1), x.size(2), times * a}), 3, 0, length);
}

class FactorizedDenseLogits : public SynthesizerLogits {
 public:
  FactorizedDenseLogits(const AttentionConfig& config, Initialiser& initialiser) {
    const std::int64_t heads = config.heads, length = config.max_length, hidden = take_hidden_width(config);
    outer_ = config.options.take_choice("tiling", {"tile", "outer"}) == "outer";
    const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(length))));
    const std::int64_t a = config.options.take_integer("a", root, 1, most_units);
    const std::int64_t b =
        config.options.take_integer("b", second_length(a, length, outer_), 1, std::max(most_units, length));
    check(b >= ceil_div(length, a), "factorized dense logits need a b >= max_length, got a = ", a,
          ", b = ", b, " for ", length, " positions");
    add_parameter("W1", w1_, xavier_per_head(heads, config.width, hidden, initialiser));
    add_parameter("WA", wa_, xavier_per_head(heads, hidden, a, initialiser));
    add_parameter("WB", wb_, xavier_per_head(heads, hidden, b, initialiser));
    if (!take_logit_bias(config)) return;
    add_parameter("b1", b1_, Initialiser::constant({heads, hidden}, 0));
    add_parameter("bA", ba_, Initialiser::constant({heads, a}, 0));
    add_parameter("bB", bb_, Initialiser::constant({heads, b}, 0));
  }

  std::size_t matrix_parts() const override { return 2; }
  std::vector<Tensor> matrix_rows(const Tensor& x, std::int64_t first) const override {
    const Tensor hid = relu(linear_per_head(slice(x, 1, first, x.size(1)), w1_, b1_));  // [B, H, n, df]
    Tensor a = matmul(hid, wa_), b = matmul(hid, wb_);
    if (ba_.defined()) {
      a = a + unsqueeze(ba_, 1);
      b = b + unsqueeze(bb_, 1);
    }
    return {a, b};
  }

  Tensor matrix(std::span<const Tensor> rows, std::int64_t keys) const override {
    Tensor a = rows[0], b = rows[1];
    if (!outer_) {
      const std::int64_t each = a.size(3), times = ceil_div(keys, each);
      const Tensor pieces = reshape(tiled(b, times * each), {b.size(0), b.size(1), b.size(2), times, each});
      const Shape flat{b.size(0), b.size(1), b.size(2), times * each};
      return slice(reshape(pieces * unsqueeze(a, 3), flat), 3, 0, keys);
    }
    a = slice(a, 3, 0, ceil_div(keys, b.size(3)));  // the others meet no position
    if (a.size(3) == 1) b = slice(b, 3, 0, keys);
    const Tensor products = unsqueeze(a, 4) * unsqueeze(b, 3);  // [B, H, n, a, b]
    const Shape flat{a.size(0), a.size(1), a.size(2), a.size(3) * b.size(3)};
    return slice(reshape(products, flat), 3, 0, keys);
  }

 private:
  bool outer_ = false;
  Tensor w1_, b1_;  // [H, d, df], [H, df]
  Tensor wa_, ba_;  // [H, df, a], [H, a]
  Tensor wb_, bb_;  // [H, df, b], [H, b]
};

}  // namespace

LogitsPtr make_factorized_dense_logits(const AttentionConfig& config, Initialiser& initialiser) {
  return std::make_unique<FactorizedDenseLogits>(config, initialiser);
}

AttentionVariant synthesizer_factorized_dense_variant() {
  return {"synthesizer_factorized_dense", synthesizer_capabilities(), [](const AttentionConfig& config) {
            return make_synthesizer("synthesizer_factorized_dense", config, make_factorized_dense_logits);
          }};
}

}  // namespace heed
