// Local attention: the dot product within a window that slides over the text, the "local attention" of
// comparisons such as Tay et al. 2020 (arXiv 2011.04006, section 3.2) and the base of Longformer and BigBird,
// without anything global:
//
//   O_i = softmax( q_i k_j^T / sqrt(dh) ) v_j  over  |i - j| <= r        causal: 0 <= i - j <= r
//   O   = merge(...) Wo                        q, k, v = split(X Wq), split(X Wk), split(X Wv)
//
// Decoding keeps the keys and values of the last r positions, whatever the length. Padding is a key that is
// not seen, and counts as a position.
//
// Time N r d + N d^2, parameters 4 d^2.
//
// Settings: "reach" r, the tokens seen on each side (64).

#include <algorithm>
#include <cstdlib>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/block_patterns.h"

namespace heed {
namespace {

class Local : public PatternAttention {
 public:
  explicit Local(const AttentionConfig& config)
      : PatternAttention(config),
        w_(config, initialiser_),
        reach_(config.options.take_integer("reach", 64, 0, most_positions)) {
    add_projections(w_);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    const Projections::Projected x = w_.of(input.x);
    cache.extend_mask(input);
    cache.key = appended(std::move(cache.key), rotary_(x.key, cache.position));
    cache.value = appended(std::move(cache.value), x.value);
    const Tensor out = attend(rotary_(x.query, cache.position), cache.key, cache.value, cache.mask, context);
    cache.position += input.x.size(1);
    const std::int64_t held = cache.key.size(1), begin = std::max<std::int64_t>(0, held - reach_);
    for (Tensor* kept : {&cache.key, &cache.value, &cache.mask})
      if (kept->defined() && begin > 0) *kept = contiguous(slice(*kept, 1, begin, held));
    return out;
  }

 protected:
  bool sees(std::int64_t, std::int64_t i, std::int64_t j, std::int64_t) const override {
    return i - j >= least() && i - j <= reach_;
  }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const Projections::Projected x = w_.of(input.x);
    return attend(rotary_(x.query), rotary_(x.key), x.value, input.mask, context);
  }

 private:
  /// The least i - j that is seen.
  std::int64_t least() const { return config().causal ? 0 : -reach_; }

  /// Queries [B, N, H dh], keys and values [B, M, H dh]; the last query is at the last key.
  Tensor attend(const Tensor& queries, const Tensor& keys, const Tensor& values, const Tensor& mask,
                Context& context) {
    const std::int64_t heads = config().heads;
    const Tensor query = split_heads(queries, heads), key = split_heads(keys, heads);
    AttentionOptions options = kernel_options(mask, context);
    options.pattern = pattern(query.size(2), key.size(2));
    distances_.add_to(options, query.size(2), key.size(2), query);
    show_weights(context, query, key, options);
    return w_.output(merge_heads(attention(query, key, split_heads(values, heads), options)));
  }

  std::shared_ptr<const BlockPattern> pattern(std::int64_t queries, std::int64_t keys) {
    return patterns_.get({queries, keys}, [&] {
      PatternDefinition definition{queries, keys, 1, 64, {}, {}};
      const std::int64_t first = keys - queries;  // the position of query 0
      definition.entry = [&](std::int64_t head, std::int64_t i, std::int64_t j) {
        return sees(head, first + i, j, keys);
      };
      definition.content = [&, b = definition.block](std::int64_t, std::int64_t row, std::int64_t column) {
        const std::int64_t middle = first + (row - column) * b;  // i - j within a block: middle +- (b - 1)
        const std::int64_t low = middle - (b - 1), high = middle + (b - 1);
        if (high < least() || low > reach_) return BlockContent::none;
        return low >= least() && high <= reach_ ? BlockContent::all : BlockContent::some;
      };
      return make_block_pattern(definition);
    });
  }

  Projections w_;
  std::int64_t reach_;
};

}  // namespace

AttentionVariant local_variant() {
  return {"local",
          {.causal = true,
           .as_heads = true,
           .rotary = true,
           .alibi = true,
           .reason = "its window slides over one sequence"},
          make_layer<Local>};
}

}  // namespace heed
