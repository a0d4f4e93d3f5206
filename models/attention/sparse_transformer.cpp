// Sparse Transformer: "Generating long sequences with Sparse Transformers", Child et al. 2019, arXiv
// 1904.10509, sections 4.2 - 4.3. Dot-product attention in which query i sees only the keys j of
//
//   strided:  A1 = { i - l <= j <= i },          A2 = { j <= i : (i - j) mod l = 0 }
//   fixed:    A1 = { j <= i : j div l = i div l },  A2 = { j <= i : j mod l in { l - c, ..., l - 1 } }
//   O = merge( softmax( q k^T / sqrt(dh) over the keys seen ) v ) Wo
//
// Options: "pattern", "strided" (default) or "fixed"; "mode", which set a head uses: "heads" (default: even
// heads A1, odd heads A2), "interleaved" (even layers A1, odd layers A2) or "merged" (the union); "stride" l
// (the square root of max_length, or 128 where that is not stated); "summary" c (l / 16, at least 1).
//
// A1 goes through blocks along the diagonal: N l d. Strided A2 is causal attention among the positions of one
// residue, so these are brought together: N (N / l) d. Fixed A2 brings the c N / l keys that anybody sees
// together: N (c N / l) d. With l near sqrt(N) all of these are N sqrt(N) d. The strided union fits no order
// of the positions, so that its two sets are attended apart, A2 without what A1 has, and joined under one
// softmax. Parameters 4 d^2.
//
// Bidirectional (an extension): without j <= i, and strided A1 = { |i - j| <= l }. In fixed A2 a query may
// see nothing; it gets 0. Cross-attention is not defined.

#include <algorithm>
#include <cmath>

#include "heed/models/attention/block_patterns.h"
#include "heed/models/attention/heads.h"
#include "heed/models/attention/key_sets.h"
#include "heed/models/attention/residue_attention.h"
#include "heed/models/attention/rotary.h"

namespace heed {
namespace {

class SparseTransformer : public PatternAttention {
 public:
  explicit SparseTransformer(const AttentionConfig& config)
      : PatternAttention(config),
        initialiser_(config.seed),
        w_(config, initialiser_),
        rotary_(config),
        mode_(config.options.take_choice("mode", {"heads", "interleaved", "merged"})) {
    sets_.strided = config.options.take_choice("pattern", {"strided", "fixed"}) == "strided";
    sets_.causal = config.causal;
    const std::int64_t l = sets_.stride =
        config.options.take_integer("stride", default_stride(), 1, most_positions);
    sets_.summary = config.options.take_integer("summary", std::max<std::int64_t>(1, l / 16), 1, l);
    add_projections(w_);
  }

 protected:
  bool sees(std::int64_t head, std::int64_t i, std::int64_t j, std::int64_t) const override {
    return sets_.sees(set_of(head), i, j);
  }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t heads = config().heads;
    const Projections::Projected x = w_.of(input.x);
    const Tensor q = split_heads(rotary_(x.query), heads);  // [B, H, N, dh]
    const Tensor k = split_heads(rotary_(x.key), heads), v = split_heads(x.value, heads);
    show_visible_weights(context, q, k, input.mask);
    if (mode_ != "heads" || heads == 1)
      return w_.output(merge_heads(attend(set_of(0), q, k, v, input.mask, context)));
    const auto half = [&](const Tensor& x, std::int64_t parity) { return slice(x, 1, parity, heads, 2); };
    const Tensor even = attend(KeySet::local, half(q, 0), half(k, 0), half(v, 0), input.mask, context);
    const Tensor odd = attend(KeySet::distant, half(q, 1), half(k, 1), half(v, 1), input.mask, context);
    std::vector<Tensor> in_order;
    for (std::int64_t h = 0; h < heads; ++h) in_order.push_back(select(h % 2 ? odd : even, 1, h / 2));
    return w_.output(merge_heads(stack(in_order, 1)));
  }

 private:
  std::int64_t default_stride() const {
    const std::int64_t length = config().max_length;
    return length > 0 ? std::lround(std::ceil(std::sqrt(static_cast<double>(length)))) : 128;
  }

  KeySet set_of(std::int64_t head) const {
    if (mode_ == "merged") return KeySet::both;
    const std::int64_t turn = mode_ == "heads" ? head : config().layer;
    return turn % 2 == 0 ? KeySet::local : KeySet::distant;
  }

  Tensor attend(KeySet set, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                Context& context) {
    if (!sets_.strided) return attend_fixed(set, q, k, v, mask, context);
    const auto near = [&] {
      AttentionOptions options = kernel_options(mask, context);
      options.pattern = blocks(KeySet::local, sets_.key_order(KeySet::local, q.size(2)), q.size(2));
      return options;
    };
    const auto far = [&] {
      AttentionOptions options = kernel_options(mask, context);
      options.causal = config().causal;
      return options;
    };
    if (set == KeySet::local) return attention(q, k, v, near());
    if (set == KeySet::distant) return residue_attention(q, k, v, sets_.stride, far());
    constexpr std::int64_t beyond_local = 2;  // strides: A1 has i - l, i and i + l
    const AttentionPart parts[] = {attention_part(q, k, v, near()),
                                   residue_attention_part(q, k, v, sets_.stride, beyond_local, far())};
    return join_attention(parts);
  }

  Tensor attend_fixed(KeySet set, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                      Context& context) {
    const std::vector<std::int32_t> order = sets_.key_order(set, q.size(2));
    if (order.empty()) return Tensor::zeros(q.shape(), q.dtype(), q.device());
    const Tensor ids = Tensor::from(order, {static_cast<std::int64_t>(order.size())}, q.device());
    AttentionOptions options = kernel_options(mask.defined() ? index_select(mask, 1, ids) : mask, context);
    options.pattern = blocks(set, order, q.size(2));
    return attention(q, index_select(k, 2, ids), index_select(v, 2, ids), options);
  }

  std::shared_ptr<const BlockPattern> blocks(KeySet set, const std::vector<std::int32_t>& order,
                                             std::int64_t length) {
    return cache_.get({static_cast<std::int64_t>(set), length},
                      [&] { return sets_.blocks(set, length, order); });
  }

  Initialiser initialiser_;
  Projections w_;
  Rotary rotary_;
  KeySets sets_;
  std::string mode_;
  PatternCache cache_;
};

}  // namespace

AttentionVariant sparse_transformer_variant() {
  return {"sparse_transformer",
          {.causal = true,
           .as_heads = true,
           .rotary = true,
           .reason = "the Sparse Transformer is defined for self-attention only"},
          [](const AttentionConfig& config) {
            return std::unique_ptr<Attention>(std::make_unique<SparseTransformer>(config));
          }};
}

}  // namespace heed
