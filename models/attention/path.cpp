// PaTH attention: "PaTH attention: position encoding via accumulating Householder transformations",
// Yang et al. 2025, arXiv 2505.16381, section 3. The dot product with positions that depend on the
// tokens: a key goes to the query through the reflection of each token in between.
//
//   A_ij = softmax_j( q_i H_i H_{i-1} ... H_{j+1} k_j^T / sqrt(dh) ),   H_t = I - beta_t w_t^T w_t
//   w_t  = unit( silu( conv( x_t W1 W2 ) ) ),   beta_t = 2 sigmoid(x_t Wb + bb)    one for each head
//   O    = merge(A v) Wo            over the keys j <= i;  q, k, v = split(X Wq), split(X Wk), split(X Wv)
//
// unit(x) = x / sqrt(|x|^2 + 1e-6). conv is causal with c taps (shared/token_sums.h). The logits are
// what a delta rule (core/recurrence.h) that adds each key in a column of its own reads by q; the
// paper's kernel computes the same block by block. Decoding keeps all keys, which each token
// reflects, values and c - 1 inputs of conv.
//
// The paper's variant with a forget gate (PaTH-FoX) is not here. Padded tokens reflect nothing and are
// 0 for conv. Dropout acts on A. The paper has only the causal form. Without `causal`, an extension:
// later keys come through H_i ... H_{j-1}, and conv still looks back.
//
// Time 3 N^2 d + N d^2, memory H N^2 (3 + dh / 16), parameters 4 d^2 + 2 r d.
//
// Settings: "rank" r of the map to w (32); "convolution" c (3).

#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

class Path : public Attention {
 public:
  explicit Path(const AttentionConfig& config)
      : Attention(config),
        rank_(config.options.take_integer("rank", 32, 1, most_units)),
        w_(config, initialiser_),
        direction_in_(config.width, rank_, false, initialiser_),
        direction_out_(rank_, config.width, false, initialiser_),
        strength_(config.width, config.heads, true, initialiser_),
        convolution_(config.options.take_integer("convolution", 3, 1, 64), config.width, false,
                     initialiser_) {
    add_projections(w_);
    add_module("direction_in", direction_in_);
    add_module("direction_out", direction_out_);
    add_module("strength", strength_);
    add_module("convolution", convolution_);
  }

  /// The cache holds the keys as the last token sees them, and the values [B, T, d], and in a part the
  /// last inputs of the convolution.
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    const std::int64_t before = cache.extend_mask(input);
    if (cache.parts.empty()) cache.parts.emplace_back();
    Parts x = parts_of(input, &cache.parts[0].value);
    Tensor keys = before > 0 ? split_heads(cache.key, config().heads) : Tensor();
    const Tensor compared = compare(x, &keys, false);
    cache.key = contiguous(merge_heads(keys));
    cache.value = appended(std::move(cache.value), merge_heads(x.value));
    x.value = split_heads(cache.value, config().heads);
    return attend(compared, x, cache.mask, input.x, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Parts x = parts_of(input, nullptr);
    Tensor compared = compare(x, nullptr, false);
    if (!config().causal) {
      const Tensor back = compare(x, nullptr, true);
      compared = compared + back - tril(back);
    }
    return attend(compared, x, input.mask, input.x, context);
  }

 private:
  struct Parts {
    Tensor query, key, value, direction;  // [B, H, N, dh]
    Tensor rate;                          // beta [B, H, N, 1]
  };

  Parts parts_of(const AttentionInput& input, Tensor* before) {
    const DType precise = statistics_type(input.x.dtype());
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, config().heads), precise); };
    const std::vector<Tensor> x =
        Linear::each({&w_.query, &w_.key, &w_.value, &direction_in_, &strength_}, input.x);
    const Tensor mixed = silu(convolution_(without_padding(direction_out_(x[3]), input.mask), before));
    const Tensor rate = without_padding(sigmoid(cast(x[4], precise)) * 2, input.mask);
    const Tensor w = heads_of(mixed);
    const auto width = static_cast<double>(w.size(3));
    return {heads_of(x[0]) / std::sqrt(width), heads_of(x[1]), heads_of(x[2]),
            rms_norm(w, {}, 1e-6 / width) / std::sqrt(width), unsqueeze(transpose(rate, 1, 2), 3)};
  }

  /// The logits of the keys up to each query (`back`: from it on) [B, H, N, T]; 0 for the others.
  /// `*keys` are those before the first token (undefined: none), and become those after the last.
  static Tensor compare(const Parts& x, Tensor* keys, bool back) {
    const std::int64_t length = x.query.size(2), before = keys && keys->defined() ? keys->size(2) : 0;
    const Tensor at = Tensor::arange(length, DType::i32, x.query.device());
    const Tensor columns =
        pad(cast(equal(unsqueeze(at, 1), unsqueeze(at, 0)), x.query.dtype()), 1, before, 0);
    const RecurrenceResult found =
        recurrence({.query = x.query,
                    .key = x.key,
                    .value = expand(columns, {x.query.size(0), x.query.size(1), length, before + length}),
                    .reading = x.direction * x.rate,
                    .writing = x.direction,
                    .state = before > 0 ? pad(transpose(*keys, 2, 3), 3, 0, length) : Tensor(),
                    .reverse = back});
    if (keys) *keys = transpose(found.state, 2, 3);
    return found.output;
  }

  /// O from the logits of T keys, the last of which are those of the queries.
  Tensor attend(const Tensor& compared, const Parts& x, const Tensor& mask, const Tensor& like,
                Context& context) {
    const std::int64_t length = compared.size(2), total = compared.size(3);
    Tensor allowed = Tensor::ones({1, 1, length, total}, DType::i32, like.device());
    if (config().causal) allowed = tril(allowed, total - length);
    if (mask.defined()) allowed = allowed * unsqueeze(unsqueeze(mask, 1), 1);
    const Tensor weights = masked_softmax(compared, allowed);
    show(context, "weights", weights);
    const Tensor out = matmul(maybe_dropout(weights, config().dropout, context), x.value);
    return w_.output(cast(merge_heads(out), like.dtype()));
  }

  std::int64_t rank_;  // r
  Projections w_;
  Linear direction_in_, direction_out_, strength_;  // W1, W2, and Wb with bb
  ShortConvolution convolution_;
};

}  // namespace

AttentionVariant path_variant() {
  return {"path",
          {.causal = true, .reason = "the tokens between a key and a query are of one sequence"},
          make_layer<Path>};
}

}  // namespace heed
