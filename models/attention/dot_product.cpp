// Multi-head scaled dot-product attention: "Attention is all you need", Vaswani et al. 2017, arXiv
// 1706.03762, sections 3.2.1 - 3.2.3. Heads have width dh = d / H, and memory is Y = X in
// self-attention:
//
//   q = split(X Wq),  k = split(Y Wk),  v = split(Y Wv)         [B, H, N or M, dh]
//   A = softmax( q k^T / sqrt(dh) )  over the allowed keys      (eq. 1)
//   O = merge(A v) Wo
//
// A key is allowed unless it is padding or, in the causal form, later than the query. Time N M d +
// (N + M) d^2, parameters 4 d^2; the fused kernel holds no N x M matrix.
//
// Grouped queries (Ainslie et al. 2023, arXiv 2305.13245, section 2.2): with G heads of keys and
// values, Wk and Wv are [d -> G dh], and each of these heads serves H / G consecutive query heads.
// Parameters 2 d^2 (1 + G / H); the decoding cache shrinks to G / H of its size. G = 1 is
// multi-query attention (Shazeer 2019, arXiv 1911.02150).
//
// A window W (Mistral 7B: Jiang et al. 2023, arXiv 2310.06825, section 2) allows keys j with
// 0 <= i - j < W only, in an encoder |i - j| < W. Time N W d + N d^2; decoding keeps W - 1 keys.
//
// A soft cap c (Gemma 2: arXiv 2408.00118, section 2.3) turns a logit l, before masks and biases of
// positions, into c tanh(l / c). The logits are then held in memory, B H N M numbers.
//
// Positions may rotate the queries and keys or add to the logits (models/positions.h).
//
// Settings: "kv_heads" G, a divisor of H (0: H); "window" W (0: none); "logit_cap" c (0: none); "logit_scale"
// in place of 1 / sqrt(dh) (0); "rotary_base", for layers that rotate with another base than the
// model's and without its scaling (0: the model's); "relative" (false), biases of distances
// (DistanceBias) beside the model's positions; "output_bias", a bias of Wo (defaults to that of
// the other projections); "sink" and "gate" (both "none"), "qk_norm" and "value_residual" (both
// false; shared/sink_and_gate.h).

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/block_patterns.h"
#include "heed/models/attention/shared/projected_attention.h"
#include "heed/models/attention/shared/sink_and_gate.h"

namespace heed {
namespace {

std::int64_t read_window(const Options& options) {
  return options.take_integer("window", 0, 0, most_positions);
}

class DotProductAttention : public ProjectedAttention {
 public:
  explicit DotProductAttention(const AttentionConfig& config)
      : ProjectedAttention(with_own_positions(config),
                           {.key_heads = read_key_heads(config),
                            .output_bias = config.options.take_bool("output_bias", config.bias),
                            .options = ProjectionOptions::take(config),
                            .window = read_window(config.options)}),
        cap_(config.options.take_number("logit_cap", 0, 0, 1e6)),
        scale_(config.options.take_number("logit_scale", 0, 0, 1e6)),
        sink_(config),
        gate_(config, initialiser_) {
    if (sink_.has_parameters()) add_module("sink", sink_);
    if (gate_.map()) add_module("gate", *gate_.map());
  }

 protected:
  Tensor attend(const Tensor& x, const Tensor& queries, const Tensor& keys, const Tensor& values,
                const Tensor& key_mask, Context& context) override {
    const Tensor key = split_heads(keys, key_heads_), value = split_heads(values, key_heads_);
    AttentionOptions options = kernel_options(key_mask, context);
    options.causal = config().causal;
    options.scale = scale_;
    const Tensor query = split_heads(queries, config().heads);
    if (const std::int64_t n = query.size(2), m = key.size(2); window_ > 0 && m > window_) {
      const std::int64_t least = config().causal ? 0 : 1 - window_;
      options.pattern = patterns_.get(
          {n, m}, [&] { return make_block_pattern(window_definition(n, m, least, window_ - 1)); });
      options.causal = false;
    }
    distances_.add_to(options, query.size(2), key.size(2), query);
    show(context, "weights", [&] {
      AttentionOptions shown = options;
      Tensor rows = query.detach(), columns = for_all_heads(key).detach();
      cap_logits(rows, columns, shown);
      return sink_.weights(rows, columns, shown);
    });
    return w_.output(gate_(merge_heads(grouped(query, key, value, options)), x));
  }

 private:
  static std::int64_t read_key_heads(const AttentionConfig& config) {
    const std::int64_t heads = config.options.take_integer("kv_heads", 0, 0, most_units);
    check(heads == 0 || config.heads % heads == 0, "setting 'kv_heads' must divide the ", config.heads,
          " heads, each of which has one of keys and values, got ", heads);
    return heads > 0 ? heads : config.heads;
  }

  static AttentionConfig with_own_positions(const AttentionConfig& config) {
    const double base = config.options.take_number("rotary_base", 0, 0, 1e12);
    AttentionConfig own = config;
    own.relative = config.options.take_bool("relative", false) || config.relative;
    check(base == 0 || config.rotary,
          "setting 'rotary_base' of an attention needs the model's positions to be rotary");
    if (base > 0) own.angles = {.base = base, .share = config.angles.share};
    return own;
  }

  /// attention() with the sink and the cap.
  Tensor attend_capped(Tensor query, Tensor key, const Tensor& value, AttentionOptions options) const {
    cap_logits(query, key, options);
    return sink_.attend(query, key, value, options);
  }

  /// Moves the capped logits into the bias, and leaves a query and a key whose products are 0.
  void cap_logits(Tensor& query, Tensor& key, AttentionOptions& options) const {
    if (cap_ == 0) return;
    const double scale = scale_ > 0 ? scale_ : 1 / std::sqrt(static_cast<double>(query.size(3)));
    const Tensor capped = tanh(matmul(query, transpose(key, -2, -1)) * (scale / cap_)) * cap_;
    options.bias = options.bias.defined() ? capped + options.bias : capped;
    for (Tensor* x : {&query, &key})
      *x = Tensor::zeros({x->size(0), x->size(1), x->size(2), 1}, x->dtype(), x->device());
  }

  /// query [B, H, N, dh], key and value [B, G, M, dh].
  Tensor grouped(const Tensor& query, const Tensor& key, const Tensor& value, AttentionOptions options) {
    const std::int64_t batch = query.size(0), length = query.size(2), sharing = config().heads / key_heads_;
    if (sharing == 1 || options.pattern || (length > 1 && (options.causal || distances_.active())))
      return attend_capped(query, for_all_heads(key), for_all_heads(value), options);
    // All queries see the same keys, so the queries of a group become one head and keys are not
    // copied.
    options.causal = false;
    if (distances_.active()) {  // one query: the bias row of each head becomes a row of its group
      options.bias = reshape(distances_.matrix(1, key.size(2), query), {1, key_heads_, sharing, key.size(2)});
      options.slopes = {};
    }
    const Tensor group = reshape(query, {batch, key_heads_, sharing * length, query.size(3)});
    return reshape(attend_capped(group, key, value, options), query.shape());
  }

  /// Repeats each head of x [B, G, M, dh] for every query head of its group: [B, H, M, dh].
  Tensor for_all_heads(const Tensor& x) const {
    const std::int64_t sharing = config().heads / key_heads_;
    if (sharing == 1) return x;
    const Shape each{x.size(0), key_heads_, sharing, x.size(2), x.size(3)};
    return reshape(expand(unsqueeze(x, 2), each), {x.size(0), config().heads, x.size(2), x.size(3)});
  }

  double cap_, scale_;  // 0: none
  PatternCache patterns_;
  AttentionSink sink_;
  OutputGate gate_;
};

Capabilities dot_product_capabilities(const Options& options) {
  const bool slides = read_window(options) > 0, biased = options.take_bool("relative", false);
  return {.causal = true,
          .cross = !slides && !biased,
          .as_heads = true,
          .rotary = true,
          .alibi = true,
          .relative = !biased,  // otherwise they are there anyway
          .reason = slides || biased ? "windows and distances are within one sequence" : ""};
}

}  // namespace

AttentionVariant dot_product_variant() {
  return {"dot_product", dot_product_capabilities({}), make_layer<DotProductAttention>,
          dot_product_capabilities};
}

}  // namespace heed
