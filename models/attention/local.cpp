// Local attention: the dot product within a sliding window, the "local attention" of CAB (Zhang et
// al. 2022, arXiv 2210.07661) and the base of Longformer and BigBird, without global tokens. (The
// local attention of the Long Range Arena, arXiv 2011.04006, is attention within separate blocks.)
//
//   O_i = softmax( q_i k_j^T / sqrt(dh) ) v_j  over  |i - j| <= r        causal: 0 <= i - j <= r
//   O   = merge(...) Wo                        q, k, v = split(X Wq), split(X Wk), split(X Wv)
//
// Decoding keeps the keys and values of the last r positions, at any length. Padding is never seen,
// but counts as a position.
//
// Attention sinks ("Efficient streaming language models with attention sinks", Xiao et al. 2023,
// arXiv 2309.17453, section 3.2): all positions see the first n positions (in the causal form, all
// later positions do), and decoding keeps them. Departure: the paper counts positions within the
// cache, so that no distance exceeds those of training. Here rotary positions are those of the
// text, and ALiBi cannot be combined with sinks.
//
// Time N (r + n) d + N d^2, parameters 4 d^2.
//
// Settings: "reach" r, the tokens seen on each side (64); "sinks" n (0; the paper takes 4); "sink"
// and "gate" (both "none"), "qk_norm" and "value_residual" (both false; shared/sink_and_gate.h).

#include <algorithm>
#include <cstdlib>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/block_patterns.h"
#include "heed/models/attention/shared/sink_and_gate.h"

namespace heed {
namespace {

std::int64_t read_sinks(const Options& options) {
  return options.take_integer("sinks", 0, 0, most_positions);
}

class Local : public PatternAttention {
 public:
  explicit Local(const AttentionConfig& config)
      : PatternAttention(config),
        w_(config, initialiser_),
        reach_(config.options.take_integer("reach", 64, 0, most_positions)),
        sinks_(read_sinks(config.options)),
        sink_(config),
        gate_(config, initialiser_) {
    add_projections(w_);
    changed_ = ProjectionOptions(*this, ProjectionOptions::take(config));
    if (sink_.has_parameters()) add_module("sink", sink_);
    if (gate_.map()) add_module("gate", *gate_.map());
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    const Projections::Projected x = changed_(w_.of(input.x), context);
    cache.extend_mask(input);
    cache.key = appended(std::move(cache.key), rotary_(x.key, cache.position));
    cache.value = appended(std::move(cache.value), x.value);
    const Tensor out =
        attend(input.x, rotary_(x.query, cache.position), cache.key, cache.value, cache.mask, context);
    cache.position += input.x.size(1);
    const std::int64_t held = cache.key.size(1), begin = held - reach_;
    for (Tensor* kept : {&cache.key, &cache.value, &cache.mask})
      if (kept->defined() && begin > sinks_)
        *kept = concat({slice(*kept, 1, 0, sinks_), slice(*kept, 1, begin, held)}, 1);
    return out;
  }

 protected:
  /// Also correct if positions between the sinks and the last ones were dropped.
  bool sees(std::int64_t, std::int64_t i, std::int64_t j, std::int64_t) const override {
    if (j < sinks_) return !config().causal || j <= i;
    return i - j >= least() && i - j <= reach_;
  }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const Projections::Projected x = changed_(w_.of(input.x), context);
    return attend(input.x, rotary_(x.query), rotary_(x.key), x.value, input.mask, context);
  }

 private:
  /// The least i - j that is seen.
  std::int64_t least() const { return config().causal ? 0 : -reach_; }

  /// Inputs x [B, N, d] and their queries [B, N, H dh], keys and values [B, M, H dh]; the last
  /// query is at the last key.
  Tensor attend(const Tensor& x, const Tensor& queries, const Tensor& keys, const Tensor& values,
                const Tensor& mask, Context& context) {
    const std::int64_t heads = config().heads;
    const Tensor query = split_heads(queries, heads), key = split_heads(keys, heads);
    AttentionOptions options = kernel_options(mask, context);
    options.pattern = pattern(query.size(2), key.size(2));
    distances_.add_to(options, query.size(2), key.size(2), query);
    show(context, "weights", [&] { return sink_.weights(query.detach(), key.detach(), options); });
    const Tensor attended = sink_.attend(query, key, split_heads(values, heads), options);
    return w_.output(gate_(merge_heads(attended), x));
  }

  std::shared_ptr<const BlockPattern> pattern(std::int64_t queries, std::int64_t keys) {
    return patterns_.get({queries, keys}, [&] {
      PatternDefinition definition = window_definition(queries, keys, least(), reach_);
      if (sinks_ == 0) return make_block_pattern(definition);
      definition.entry = [&](std::int64_t head, std::int64_t i, std::int64_t j) {
        return sees(head, keys - queries + i, j, keys);
      };
      definition.content = [&, window = definition.content, b = definition.block](
                               std::int64_t head, std::int64_t row, std::int64_t column) {
        return column * b < sinks_ ? BlockContent::some : window(head, row, column);
      };
      return make_block_pattern(definition);
    });
  }

  Projections w_;
  ProjectionOptions changed_;
  std::int64_t reach_, sinks_;
  AttentionSink sink_;
  OutputGate gate_;
};

Capabilities local_capabilities(const Options& options) {
  return {.causal = true,
          .as_heads = true,
          .rotary = true,
          .alibi = read_sinks(options) == 0,
          .reason = "its window slides over one sequence"};
}

}  // namespace

AttentionVariant local_variant() {
  return {"local", local_capabilities({}), make_layer<Local>, local_capabilities};
}

}  // namespace heed
