// Native sparse attention: Yuan et al. 2025, arXiv 2502.11089, section 3. A query sees all blocks
// of l keys in compressed form, the n most relevant blocks in full, and a window. Each of the three
// has its own keys and values, and gates weigh them. H / G query heads share a head of keys and
// values, and a choice of blocks. q = split(X Wq), and k, v = split(X Wk), split(X Wv) for each of
// the three:
//
//   phi_b = W2 silu( W1 flat(k + e over block b) + b1 ) + b2   complete blocks; same for v (eq. 7)
//   p   = softmax( q phi^T / sqrt(dh) )  over the blocks that end at the query or before   (eq. 8)
//   I   = the own block, the first, the one before, and those with the largest sum of p over the
//         heads of a group: n in all (n = 1: the own; n = 2: the first, too)           (eq. 9 - 12)
//   o_m = softmax( q k^T / sqrt(dh) ) v  over phi; the keys of I; the last w keys (eq. 5, sec. 3.3)
//   O   = merge( sum_m g_m o_m ) Wo,   g = sigmoid( X Wg )      three numbers per head     (eq. 5)
//
// Simplifications: compressed blocks do not overlap and are the blocks that are chosen (l = d =
// l'), so scores need no sums over parts (eq. 9). The paper has (l, d, l') = (32, 16, 64), n = 16,
// w = 512. It leaves open the forms of phi (an MLP with positions e within the block) and of the
// gates' MLP. Here phi has one hidden layer as wide as a head, the same for all heads, and the
// gates are a linear map. The authors published no code. flash-linear-attention uses the mean of a
// block for phi, one map for the keys and values of all three, and a linear map for the gates. The
// choice has no gradient: phi learns through p.
//
// The queries of a chosen block are brought together (shared/chosen_blocks.h). Rotary positions
// turn q and all k, before phi. Padded keys are 0 for phi; blocks of padding are neither seen nor
// chosen; blocks follow positions in the batch. Dropout acts on all three softmaxes. Decoding keeps
// all keys. Without `causal`, an extension: all blocks can be seen and chosen, and the window
// extends to both sides.
//
// Time N (n l + w + N / l) d + N d^2, memory N (n d + H N / l), parameters (2 + 6 G / H) d^2 + 2 l
// dh^2.
//
// Settings: "kv_heads" G, a divisor of H (0: H); "block" l (32); "blocks" n (8); "window" w (64).

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/block_patterns.h"
#include "heed/models/attention/shared/chosen_blocks.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

/// phi: [B, G, blocks l, dh] -> [B, G, blocks, dh].
class BlockInShort : public Module {
 public:
  BlockInShort(std::int64_t block, std::int64_t width, Initialiser& initialiser)
      : in_(*this, "in", block * width, width, true, initialiser),
        out_(*this, "out", width, width, true, initialiser) {
    add_parameter("positions", positions_, initialiser.normal({block, width}, 0.02));
  }

  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    const std::int64_t block = positions_.size(0), count = x.size(2) / block;
    const Shape cut{x.size(0), x.size(1), count, block, x.size(3)};
    const Tensor placed = reshape(without_padding(reshape(reshape(x, cut) + positions_, x.shape()), mask),
                                  {x.size(0), x.size(1), count, block * x.size(3)});
    return Linear::through(in_, UnaryOp::silu, out_, placed);
  }

 private:
  Tensor positions_;  // e [l, dh]
  Part<Linear> in_, out_;
};

class NativeSparse : public Attention {
 public:
  explicit NativeSparse(const AttentionConfig& config)
      : Attention(config),
        groups_(read_groups(config)),
        head_width_(config.inner_width() / config.heads),
        block_(config.options.take_integer("block", 32, 1, 4096)),
        blocks_(config.options.take_integer("blocks", 8, 1, most_positions)),
        window_(config.options.take_integer("window", 64, 1, most_positions)),
        query_(*this, "query", config.width, config.inner_width(), config.bias, initialiser_),
        key_(*this, "key", config.width, 3 * groups_ * head_width_, config.bias, initialiser_),
        value_(*this, "value", config.width, 3 * groups_ * head_width_, config.bias, initialiser_),
        output_(*this, "output", config.inner_width(), config.width, config.bias, initialiser_),
        gate_(*this, "gate", config.width, 3 * config.heads, config.bias, initialiser_),
        short_key_(*this, "short_key", block_, head_width_, initialiser_),
        short_value_(*this, "short_value", block_, head_width_, initialiser_),
        rotary_(config) {}

  /// The cache holds k and v of all three, and in a part phi of the complete blocks [B, blocks, G
  /// dh].
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    if (cache.parts.empty()) cache.parts.resize(1);
    AttentionCache& in_short = cache.parts[0];
    const std::int64_t before = cache.extend_mask(input), now = before + input.x.size(1);
    const std::vector<Tensor> x = split_maps(input.x, before);
    cache.key = appended(std::move(cache.key), x[1]);
    cache.value = appended(std::move(cache.value), x[2]);
    const std::int64_t begin = before / block_ * block_, end = now / block_ * block_;
    if (end > begin) {
      const InShort added =
          compress_blocks(slice(cache.key, 1, begin, end), slice(cache.value, 1, begin, end),
                          cache.mask.defined() ? slice(cache.mask, 1, begin, end) : Tensor());
      in_short.key = appended(std::move(in_short.key), merge_heads(added.key));
      in_short.value = appended(std::move(in_short.value), merge_heads(added.value));
    }
    InShort all;
    if (end > 0) all = {split_heads(in_short.key, groups_), split_heads(in_short.value, groups_)};
    return attend(x, cache.key, cache.value, all, cache.mask, true, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::vector<Tensor> x = split_maps(input.x, 0);
    const std::int64_t length = input.x.size(1), whole = length / block_ * block_,
                       cut = config().causal ? whole : ceil_div(length, block_) * block_;
    const auto to_cut = [&](const Tensor& t) {
      return cut > length ? pad(t, 1, 0, cut - length) : slice(t, 1, 0, cut);
    };
    InShort in_short;
    if (cut > 0) {
      const Tensor real = Tensor::ones({input.x.size(0), length}, DType::i32, input.x.device());
      in_short =
          compress_blocks(to_cut(x[1]), to_cut(x[2]), to_cut(input.mask.defined() ? input.mask : real));
    }
    return attend(x, x[1], x[2], in_short, input.mask, false, context);
  }

 private:
  struct InShort {
    Tensor key, value;  // [B, G, blocks, dh]; undefined: no blocks
  };

  static std::int64_t read_groups(const AttentionConfig& config) {
    const std::int64_t heads = config.options.take_integer("kv_heads", 0, 0, most_units);
    check(heads == 0 || config.heads % heads == 0, "setting 'kv_heads' must divide the ", config.heads,
          " heads, each of which has one of keys and values, got ", heads);
    return heads > 0 ? heads : config.heads;
  }

  /// q, the three k, the three v and the logits of the gates.
  std::vector<Tensor> split_maps(const Tensor& x, std::int64_t begin) {
    std::vector<Tensor> maps = Linear::each({&query_, &key_, &value_, &gate_}, x);
    maps[0] = rotary_(maps[0], begin), maps[1] = rotary_(maps[1], begin);
    return maps;
  }

  /// The heads of branch 0 (compressed), 1 (chosen) or 2 (window), of x [B, M, 3 G dh]: [B, G, M,
  /// dh].
  Tensor branch(const Tensor& x, std::int64_t which) const {
    return slice(split_heads(x, 3 * groups_), 1, which * groups_, (which + 1) * groups_);
  }

  InShort compress_blocks(const Tensor& key, const Tensor& value, const Tensor& mask) const {
    return {short_key_(contiguous(branch(key, 0)), mask), short_value_(contiguous(branch(value, 0)), mask)};
  }

  /// [B, G, M, dh] -> [B, H, M, dh]
  Tensor repeat_for_heads(const Tensor& x) const { return repeat(x, config().heads / groups_, 1); }

  /// The output for the maps of x; the last query is at the last key. `few`: use masks over all
  /// keys.
  Tensor attend(const std::vector<Tensor>& x, const Tensor& keys, const Tensor& values,
                const InShort& in_short, const Tensor& mask, bool few, Context& context) {
    const std::int64_t heads = config().heads, sharing = heads / groups_;
    const Tensor query = split_heads(x[0], heads);
    const std::int64_t batch = query.size(0), length = query.size(2), count = keys.size(1);
    const Tensor key = branch(keys, 1), value = branch(values, 1), all_keys = repeat_for_heads(key),
                 all_values = repeat_for_heads(value);
    AttentionOptions options = kernel_options(mask, context);
    options.causal = config().causal;

    Tensor sum_of_branches, chosen;
    const Tensor gates = sigmoid(permute(reshape(x[3], {batch, length, 3, heads}), {2, 0, 3, 1}));
    if (in_short.key.defined()) {
      const std::int64_t blocks = in_short.key.size(2);
      const Tensor at = Tensor::arange(blocks, DType::i32, query.device());
      const Tensor place = unsqueeze(Tensor::arange(length, DType::i32, query.device()), 1) +
                           static_cast<double>(count - length);  // [N, 1]
      const Tensor own = cast(floor(cast(place, DType::f32) / static_cast<double>(block_)), DType::i32);
      Tensor seen = slice(blocks_with_keys(mask, count, block_, query.device()), 3, 0, blocks);
      if (config().causal) seen = seen * less_equal(at * static_cast<double>(block_) + (block_ - 1.0), place);
      const Tensor logits = matmul(query, transpose(repeat_for_heads(in_short.key), 2, 3)) *
                            (1 / std::sqrt(static_cast<double>(head_width_)));
      const Tensor p = masked_softmax(logits, seen);  // [B, H, N, blocks]
      show(context, "block_weights", p);
      const Tensor o = matmul(maybe_dropout(p, config().dropout, context), repeat_for_heads(in_short.value));
      sum_of_branches = o * unsqueeze(select(gates, 0, 0), 3);
      const Tensor scores = sum(reshape(p.detach(), {batch, groups_, sharing, length, blocks}), 2);
      const Tensor always = logical_or(equal(at, 0), equal(at, own - 1));
      const Tensor others = seen * not_equal(at, own);
      chosen = choose_blocks(where(others, where(always, static_cast<double>(sharing + 1), scores),
                                   -std::numeric_limits<double>::infinity()),
                             std::min(blocks_ - 1, blocks));  // beside the own one
      show(context, "chosen", chosen);
    }
    const auto add = [&](const Tensor& o, std::int64_t gate) {
      const Tensor weighed = o * unsqueeze(select(gates, 0, gate), 3);
      sum_of_branches = sum_of_branches.defined() ? sum_of_branches + weighed : weighed;
    };
    const bool all = ceil_div(count, block_) <= blocks_;
    if (all || few) {
      AttentionOptions masked = options;
      if (!all) masked.mask = repeat(keys_of_chosen(chosen, count, block_), sharing, 1);
      add(attention(query, all_keys, all_values, masked), 1);
    } else {
      std::vector<AttentionPart> parts{
          attend_to_own_block(query, all_keys, all_values, mask, block_, options)};
      const Tensor grouped = transpose(reshape(query, {batch, groups_, sharing, length, head_width_}), 2, 3);
      for (const AttentionPart& part :
           attend_to_chosen(grouped, key, value, mask, chosen, block_, kernel_options({}, context)))
        parts.push_back({reshape(transpose(part.output, 2, 3), query.shape()),
                         reshape(transpose(part.log_sum_exp, 2, 3), {batch, heads, length})});
      add(join_attention(parts), 1);
    }
    AttentionOptions near = kernel_options(mask, context);
    near.pattern = window_pattern(length, count);
    add(attention(query, repeat_for_heads(branch(keys, 2)), repeat_for_heads(branch(values, 2)), near), 2);
    return output_(merge_heads(sum_of_branches));
  }

  std::shared_ptr<const BlockPattern> window_pattern(std::int64_t queries, std::int64_t keys) {
    return patterns_.get({queries, keys}, [&] {
      return make_block_pattern(
          window_definition(queries, keys, config().causal ? 0 : 1 - window_, window_ - 1));
    });
  }

  std::int64_t groups_, head_width_, block_, blocks_, window_;  // G, dh, l, n, w
  Part<Linear> query_, key_, value_, output_, gate_;            // key_, value_: of all three
  Part<BlockInShort> short_key_, short_value_;
  Rotary rotary_;
  PatternCache patterns_;
};

}  // namespace

AttentionVariant native_sparse_variant() {
  return {"native_sparse",
          {.causal = true,
           .as_heads = true,
           .rotary = true,
           .reason = "a query has a block and a window of its own among the keys"},
          make_layer<NativeSparse>};
}

}  // namespace heed
