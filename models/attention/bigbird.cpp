// BigBird, internal transformer construction: "Big Bird: Transformers for longer sequences", Zaheer
// et al. 2020, arXiv 2007.14062, section 2. Positions are cut into nb = ceil(N / b) blocks of b;
// the last may be shorter. In head h, block bi of queries sees block bj of keys if
//
//   bi < g  or  bi >= nb - g  or  bj < g  or  bj >= nb - g      (global)
//   or  |bi - bj| <= w / 2                                      (window)
//   or  bj in rand[h, bi]                                       (random)
//   O = merge( softmax( q k^T / sqrt(dh) over the keys seen ) v ) Wo
//
// Options: "block" b (64), "global_blocks" g (1), "window_blocks" w (3), "random_blocks" r (3). The
// random blocks of a row are r distinct blocks that are neither global nor in the window; if fewer
// exist, -1 fills the rest. They are drawn once per head for the longest sequence (max_length L)
// and kept as the buffer "random_blocks" [H, ceil(L / b), r]. A shorter sequence ignores blocks
// beyond its end.
//
// Time N (2 g + w + r) b d + N d^2, memory N d (fused), parameters 4 d^2.
//
// Causal (an extension): the same layout restricted to j <= i, with random blocks drawn from
// earlier ones. Here nb = ceil(L / b), so a position's view does not depend on how much text
// follows. Cross-attention is not defined.

#include <algorithm>
#include <cstdlib>
#include <map>

#include "heed/base/error.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/block_patterns.h"

namespace heed {
namespace {

/// Appends `count` distinct numbers below `size`, with -1 once they run out: the first steps of a
/// Fisher-Yates shuffle of 0, 1, ..., storing only the entries that moved.
void draw(std::int64_t size, std::int64_t count, const RandomKey& key, std::vector<std::int64_t>& drawn) {
  std::map<std::int64_t, std::int64_t> moved;
  const auto at = [&](std::int64_t place) {
    const auto found = moved.find(place);
    return found == moved.end() ? place : found->second;
  };
  for (std::int64_t i = 0; i < count; ++i) {
    if (i >= size) {
      drawn.push_back(-1);
      continue;
    }
    const std::int64_t left = size - i;
    const auto pick = static_cast<std::int64_t>(random_word(key, static_cast<std::uint64_t>(i)) %
                                                static_cast<std::uint64_t>(left));
    drawn.push_back(at(pick));
    moved[pick] = at(left - 1);
  }
}

class BigBird : public PatternAttention {
 public:
  explicit BigBird(const AttentionConfig& config)
      : PatternAttention(config),
        w_(config, initialiser_),
        block_(config.options.take_integer("block", 64, 1, 4096)),
        global_(config.options.take_integer("global_blocks", 1, 0, most_positions)),
        window_(config.options.take_integer("window_blocks", 3, 0, most_positions)),
        random_(config.options.take_integer("random_blocks", 3, 0, 1024)) {
    add_projections(w_);
    if (random_ > 0) add_buffer("random_blocks", random_blocks_, draw_random_blocks());
  }

 protected:
  bool sees(std::int64_t head, std::int64_t i, std::int64_t j, std::int64_t length) const override {
    return (!config().causal || j <= i) &&
           sees_block(head, i / block_, j / block_, blocks(length), random_blocks());
  }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t length = input.x.size(1), heads = config().heads;
    check_length(length);
    const Projections::Projected x = w_.of(input.x);
    const Tensor q = split_heads(rotary_(x.query), heads);  // [B, H, N, dh]
    const Tensor k = split_heads(rotary_(x.key), heads), v = split_heads(x.value, heads);
    AttentionOptions options = kernel_options(input.mask, context);
    options.pattern = pattern(length);
    distances_.add_to(options, length, length, q);
    show_weights(context, q, k, options);
    return w_.output(merge_heads(attention(q, k, v, options)));
  }

 private:
  std::int64_t blocks(std::int64_t length) const {
    return ceil_div(config().causal ? config().max_length : length, block_);
  }

  bool is_global(std::int64_t block, std::int64_t nb) const {
    return block < global_ || block >= nb - global_;
  }
  bool in_window(std::int64_t bi, std::int64_t bj) const { return std::abs(bi - bj) <= window_ / 2; }

  bool sees_block(std::int64_t head, std::int64_t bi, std::int64_t bj, std::int64_t nb,
                  const std::vector<std::int32_t>& random) const {
    if (is_global(bi, nb) || is_global(bj, nb) || in_window(bi, bj)) return true;
    const std::int64_t first = (head * blocks(config().max_length) + bi) * random_;
    for (std::int64_t e = first; e < first + random_; ++e)
      if (random[static_cast<std::size_t>(e)] == bj) return true;
    return false;
  }

  std::vector<std::int32_t> random_blocks() const {
    return random_ > 0 ? random_blocks_.to_vector<std::int32_t>() : std::vector<std::int32_t>();
  }

  /// i32 [H, ceil(L / b), r].
  Tensor draw_random_blocks() {
    const std::int64_t heads = config().heads, nb = blocks(config().max_length);
    const std::uint64_t seed = initialiser_.next_seed();
    const std::int64_t rows = checked_product("the rows of blocks", heads, nb);
    if (ShapesOnly::active()) return ShapesOnly::tensor({heads, nb, random_}, DType::i32);
    std::vector<std::int32_t> all;
    std::vector<std::int64_t> drawn;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t bi = row % nb;
      // The legal blocks are the non-global ones before the window and behind it.
      const std::int64_t end = config().causal ? std::min(bi, nb - global_) : nb - global_;
      const std::int64_t before = std::clamp<std::int64_t>(bi - window_ / 2, global_, std::max(global_, end));
      const std::int64_t behind = std::max(global_, bi + window_ / 2 + 1);
      const std::int64_t legal =
          is_global(bi, nb) ? 0 : before - global_ + std::max<std::int64_t>(0, end - behind);
      drawn.clear();
      draw(legal, random_, {seed, 0, static_cast<std::uint32_t>(row)}, drawn);
      for (const std::int64_t place : drawn) {
        const std::int64_t column = global_ + place;
        const std::int64_t block = place < 0 ? -1 : column < before ? column : column - before + behind;
        all.push_back(static_cast<std::int32_t>(block));
      }
    }
    return Tensor::from(all, {heads, nb, random_});
  }

  std::shared_ptr<const BlockPattern> pattern(std::int64_t length) {
    // The key includes the random blocks, because loading a checkpoint replaces them.
    const std::vector<std::int32_t> random = random_blocks();
    PatternCache::Key key(random.begin(), random.end());
    key.push_back(length);
    return patterns_.get(key, [&] {
      PatternDefinition definition{length, length, config().heads, block_, {}, {}};
      definition.entry = [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; };
      definition.content = [&, nb = blocks(length)](std::int64_t head, std::int64_t bi, std::int64_t bj) {
        if ((config().causal && bj > bi) || !sees_block(head, bi, bj, nb, random)) return BlockContent::none;
        return config().causal && bi == bj ? BlockContent::some : BlockContent::all;
      };
      return make_block_pattern(definition);
    });
  }

  Projections w_;
  std::int64_t block_, global_, window_, random_;
  Tensor random_blocks_;
};

}  // namespace

AttentionVariant bigbird_variant() {
  return {"bigbird",
          {.causal = true,
           .any_length = false,
           .as_heads = true,
           .rotary = true,
           .alibi = true,
           .reason = "BigBird is defined for self-attention only"},
          make_layer<BigBird>};
}

}  // namespace heed
