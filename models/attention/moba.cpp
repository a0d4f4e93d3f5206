// MoBA, mixture of block attention: Lu et al. 2025, arXiv 2502.13189, section 2.2. Keys are cut
// into blocks of l. A query sees its own block and the k - 1 others whose mean key is most similar
// to it. q, k, v = split(X Wq), split(X Wk), split(X Wv), for each head and query:
//
//   s_b = q . mean of k over block b                                                       (eq. 6)
//   chosen = the own block and the k - 1 blocks with the largest s_b      causal: of earlier ones
//   O   = merge( softmax( q k^T / sqrt(dh) ) v ) Wo      over the keys of the chosen blocks (eq. 2)
//         causal: of the own block the keys up to the query
//
// The choice has no gradient; it learns through attention to the chosen keys. The own block counts
// among the k, as in the authors' code. Departure: their block means include all keys; here they
// skip padding, and blocks of padding are not chosen. As in algorithm 1, the queries of a block are
// brought together (shared/chosen_blocks.h), the own block is attended to separately, and the parts
// are joined under one softmax. If all blocks are chosen, the result is the dot product.
//
// Without `causal`, an extension: later blocks can be chosen too. The paper has blocks of 512 and
// more, and chooses 3 to 12. Decoding keeps all keys, as in the paper. Blocks follow positions in
// the batch, so padding at the beginning moves them.
//
// Time N k l d + N^2 d / l + N d^2, memory N (k d + H N / l), parameters 4 d^2.
//
// Settings: "block" l (64); "blocks" k, including the own one (3); "qk_norm" and
// "value_residual" (both false; shared/sink_and_gate.h).

#include <algorithm>
#include <limits>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/chosen_blocks.h"
#include "heed/models/attention/shared/sink_and_gate.h"
#include "heed/models/attention/shared/sorting.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

class MixtureOfBlocks : public Attention {
 public:
  explicit MixtureOfBlocks(const AttentionConfig& config)
      : Attention(config),
        w_(config, initialiser_),
        rotary_(config),
        block_(config.options.take_integer("block", 64, 1, most_positions)),
        blocks_(config.options.take_integer("blocks", 3, 1, most_positions)) {
    add_projections(w_);
    changed_ = ProjectionOptions(*this, ProjectionOptions::take(config));
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    const std::int64_t before = cache.extend_mask(input);
    const Projections::Projected x = changed_(w_.of(input.x), context);
    cache.key = appended(std::move(cache.key), rotary_(x.key, before));
    cache.value = appended(std::move(cache.value), x.value);
    const Tensor query = split_heads(rotary_(x.query, before), config().heads),
                 key = split_heads(cache.key, config().heads),
                 value = split_heads(cache.value, config().heads);
    const AttentionOptions options = over_all(query, key, kernel_options(cache.mask, context));
    return w_.output(merge_heads(attention(query, key, value, options)));
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t heads = config().heads;
    const Projections::Projected x = changed_(w_.of(input.x), context);
    const Tensor query = split_heads(rotary_(x.query), heads), key = split_heads(rotary_(x.key), heads),
                 value = split_heads(x.value, heads);
    AttentionOptions options = kernel_options(input.mask, context);
    if (context.capture) show_weights(context, query, key, over_all(query, key, options));
    options.causal = config().causal;
    if (sees_all(key)) return w_.output(merge_heads(attention(query, key, value, options)));
    std::vector<AttentionPart> parts;
    if (blocks_ > 1) {
      const Tensor chosen = pick_key_blocks(query, key, input.mask);
      for (const AttentionPart& part : attend_to_chosen(unsqueeze(query, 3), key, value, input.mask, chosen,
                                                        block_, kernel_options({}, context)))
        parts.push_back({squeeze(part.output, 3), squeeze(part.log_sum_exp, 3)});
    }
    parts.push_back(attend_to_own_block(query, key, value, input.mask, block_, options));
    return w_.output(merge_heads(join_attention(parts)));
  }

 private:
  bool sees_all(const Tensor& key) const { return ceil_div(key.size(2), block_) <= blocks_; }

  /// i32 [B, H, N, k - 1]: the blocks that queries [B, H, N, dh] choose besides their own, -1:
  /// none. The last query is at the last key.
  Tensor pick_key_blocks(const Tensor& query, const Tensor& key, const Tensor& mask) const {
    const NoGrad no_grad;
    const std::int64_t keys = key.size(2), length = query.size(2), blocks = ceil_div(keys, block_);
    const DType precise = statistics_type(key.dtype());
    const Tensor real = mask_as_numbers(mask, select(key, 1, 0));
    const Tensor summed = sum(split_into_blocks(cast(without_padding(key, mask), precise)), 3);
    const Tensor counts = sum(split_into_blocks(cast(reshape(real, {real.size(0), 1, keys, 1}), precise)), 3);
    const Tensor scores = matmul(cast(query, precise), transpose(summed / maximum(counts, 1), 2, 3));
    const Tensor at = Tensor::arange(blocks, DType::i32, key.device()),
                 own = cast(floor(cast(Tensor::arange(keys, DType::i32, key.device()), DType::f32) /
                                  static_cast<double>(block_)),
                            DType::i32);
    const Tensor place = unsqueeze(slice(own, 0, keys - length, keys), 1);  // [N, 1]
    const Tensor allowed = (config().causal ? less(at, place) : not_equal(at, place)) *
                           blocks_with_keys(mask, keys, block_, key.device());
    return choose_blocks(where(allowed, scores, -std::numeric_limits<double>::infinity()),
                         std::min(blocks_ - 1, blocks));
  }

  /// [B, H, M, n] -> [B, H, blocks, l, n].
  Tensor split_into_blocks(const Tensor& x) const {
    const std::int64_t count = ceil_div(x.size(2), block_);
    return reshape(pad(x, 2, 0, count * block_ - x.size(2)),
                   {x.size(0), x.size(1), count, block_, x.size(3)});
  }

  /// One softmax over all keys, with unchosen blocks masked; for few queries.
  AttentionOptions over_all(const Tensor& query, const Tensor& key, AttentionOptions options) const {
    options.causal = config().causal;
    if (sees_all(key)) return options;
    const Tensor none = Tensor::full({1, 1, query.size(2), 1}, -1, DType::i32, key.device());
    options.mask = keys_of_chosen(blocks_ > 1 ? pick_key_blocks(query, key, options.key_mask) : none,
                                  key.size(2), block_);
    return options;
  }

  Projections w_;
  ProjectionOptions changed_;
  Rotary rotary_;
  std::int64_t block_, blocks_;  // l, k
};

}  // namespace

AttentionVariant moba_variant() {
  return {"moba",
          {.causal = true,
           .as_heads = true,
           .rotary = true,
           .reason = "a query has a block of its own among the keys"},
          make_layer<MixtureOfBlocks>};
}

}  // namespace heed
