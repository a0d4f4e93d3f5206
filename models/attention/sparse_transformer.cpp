// Sparse Transformer: "Generating long sequences with Sparse Transformers", Child et al. 2019,
// arXiv 1904.10509, sections 4.2 - 4.3. Dot-product attention in which query i sees only the keys j
// of
//
//   strided:  A1 = { i - l <= j <= i },             A2 = { j <= i : (i - j) mod l = 0 }
//   fixed:    A1 = { j <= i : j div l = i div l },  A2 = { j <= i : l - c <= j mod l }
//   O = merge( softmax( q k^T / sqrt(dh) over the keys seen ) v ) Wo
//
// Options: "pattern", "strided" (default) or "fixed"; "mode", the set that a head uses: "heads"
// (default: even heads A1, odd heads A2), "interleaved" (even layers A1, odd layers A2) or "merged"
// (the union); "stride" l (the square root of max_length, or 128 without one); "summary" c (l / 16,
// at least 1).
//
// A1 uses blocks along the diagonal: N l d. Strided A2 is causal attention among the positions of
// one residue, which are brought together: N (N / l) d. Fixed A2 gathers the c N / l keys that
// queries can see: N (c N / l) d. With l near sqrt(N), each of these is N sqrt(N) d. No order of
// positions suits the strided union, so its two sets are attended to separately, A2 without the
// keys of A1, and joined under one softmax. Parameters 4 d^2.
//
// Bidirectional (an extension): without j <= i, and with strided A1 = { |i - j| <= l }. In fixed A2
// a query may see no key; its result is then 0. Cross-attention is not defined.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/base/error.h"
#include "heed/core/attention.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/block_patterns.h"

namespace heed {
namespace {

// Key sets.

/// The sets of keys of the Sparse Transformer: A1, A2 and their union.
enum class KeySet { local, distant, both };

/// Which keys a query sees, and the blocks that hold them.
struct KeySets {
  bool strided = true;  ///< false: fixed
  bool causal = false;
  std::int64_t stride = 1;   ///< l
  std::int64_t summary = 1;  ///< c

  // std::abs covers the extension to both directions.
  bool sees(KeySet set, std::int64_t i, std::int64_t j) const {
    if (causal && j > i) return false;
    const bool local = strided ? std::abs(i - j) <= stride : i / stride == j / stride;
    const bool distant = strided ? (i - j) % stride == 0 : is_summary(j);
    return (set != KeySet::distant && local) || (set != KeySet::local && distant);
  }

  /// The keys that any query sees. Those seen by all later queries come first, so that they fill
  /// whole blocks.
  std::vector<std::int32_t> key_order(KeySet set, std::int64_t length) const {
    std::vector<std::int32_t> summaries, others;
    for (std::int64_t j = 0; j < length; ++j)
      (!strided && set != KeySet::local && is_summary(j) ? summaries : others)
          .push_back(static_cast<std::int32_t>(j));
    if (set != KeySet::distant) summaries.insert(summaries.end(), others.begin(), others.end());
    return summaries;
  }

  /// The block pattern of `length` queries and the keys in the given order. Not for strided A2,
  /// which touches most blocks.
  std::shared_ptr<const BlockPattern> blocks(KeySet set, std::int64_t length,
                                             const std::vector<std::int32_t>& order) const {
    const auto keys = static_cast<std::int64_t>(order.size());
    PatternDefinition definition{length, keys, 1, 64, {}, {}};
    const auto position = [&order](std::int64_t column) { return order[static_cast<std::size_t>(column)]; };
    definition.entry = [&](std::int64_t, std::int64_t i, std::int64_t j) {
      return sees(set, i, position(j));
    };
    definition.content = [&, b = definition.block](std::int64_t, std::int64_t row, std::int64_t column) {
      const std::int64_t first = row * b, last = std::min(length, first + b) - 1;
      for (std::int64_t j = column * b; j < std::min(keys, (column + 1) * b); ++j)
        if (may_see(set, first, last, position(j))) return BlockContent::some;
      return BlockContent::none;
    };
    return make_block_pattern(definition);
  }

 private:
  bool is_summary(std::int64_t j) const { return j % stride >= stride - summary; }
  /// Whether a query from `first` to `last` may see key j. False is certain; true may be cautious.
  bool may_see(KeySet set, std::int64_t first, std::int64_t last, std::int64_t j) const {
    if (causal && j > last) return false;
    if (set != KeySet::local && (strided || is_summary(j))) return true;
    return strided ? j >= first - stride && j <= last + stride
                   : j / stride >= first / stride && j / stride <= last / stride;
  }
};

// Attention by residue, for strided A2.

/// Folds the positions into rounds of `stride`, so that the residue becomes part of the batch.
class Residues {
 public:
  Residues(const Tensor& query, std::int64_t stride, const AttentionOptions& options)
      : batch_(query.size(0)), heads_(query.size(1)), length_(query.size(2)) {
    check(stride > 0, "residue_attention: the stride must be positive, got ", stride);
    check(!options.mask.defined() && !options.pattern, "residue_attention: takes neither mask nor pattern");
    // Strides beyond the length are equivalent: each position has its own residue.
    constexpr std::int64_t any_length = 4096;
    stride_ = std::min(stride, std::max(any_length, length_));
    rounds_ = ceil_div(length_, stride_);
    missing_ = rounds_ * stride_ - length_;
  }

  std::int64_t rounds() const { return rounds_; }

  /// [B, H, N, dh] -> [B stride, H, N / stride, dh].
  Tensor fold(const Tensor& x) const {
    const std::int64_t width = x.size(3);
    const Tensor parts = reshape(pad(x, 2, 0, missing_), {batch_, heads_, rounds_, stride_, width});
    return reshape(permute(parts, {0, 3, 1, 2, 4}), {batch_ * stride_, heads_, rounds_, width});
  }

  Tensor unfold(const Tensor& x) const {
    const std::int64_t width = x.size(3);
    const Tensor parts = reshape(x, {batch_, stride_, heads_, rounds_, width});
    const Tensor out = reshape(permute(parts, {0, 2, 3, 1, 4}), {batch_, heads_, rounds_ * stride_, width});
    return slice(out, 2, 0, length_);
  }

  /// The key mask in the same order; positions that complete the last round are masked.
  AttentionOptions fold(AttentionOptions options, Device device) const {
    if (!options.key_mask.defined()) options.key_mask = Tensor::ones({batch_, length_}, DType::i32, device);
    const Tensor real = reshape(pad(options.key_mask, 1, 0, missing_), {batch_, rounds_, stride_});
    options.key_mask = reshape(transpose(real, 1, 2), {batch_ * stride_, rounds_});
    return options;
  }

 private:
  std::int64_t batch_, heads_, length_, stride_ = 1, rounds_ = 0, missing_ = 0;
};

/// i32 [n, n], 1 where |i - j| >= apart.
Tensor far_apart(std::int64_t n, std::int64_t apart, Device device) {
  const Tensor at = Tensor::arange(n, DType::i32, device);
  const Tensor distance = unsqueeze(at, 1) - unsqueeze(at, 0);
  const std::int64_t least = std::min(apart, n);  // nothing is further apart
  return greater_equal(distance * distance, least * least);
}

/// Attention among positions with the same residue modulo `stride`: query i sees the keys j with (i
/// - j) mod stride = 0 (and j <= i with options.causal). q, k, v [B, H, N, dh] of one sequence;
/// options without mask and pattern. Positions of one residue are brought together, so time is N (N
/// / stride) d.
Tensor residue_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t stride,
                         const AttentionOptions& options) {
  const Residues residues(query, stride, options);
  return residues.unfold(attention(residues.fold(query), residues.fold(key), residues.fold(value),
                                   residues.fold(options, query.device())));
}

/// residue_attention() only over the keys with |i - j| >= `apart` stride, to join with attention
/// over nearer keys.
AttentionPart residue_attention_part(const Tensor& query, const Tensor& key, const Tensor& value,
                                     std::int64_t stride, std::int64_t apart,
                                     const AttentionOptions& options) {
  const Residues residues(query, stride, options);
  AttentionOptions folded = residues.fold(options, query.device());
  folded.mask = far_apart(residues.rounds(), apart, query.device());
  const AttentionPart part =
      attention_part(residues.fold(query), residues.fold(key), residues.fold(value), folded);
  return {residues.unfold(part.output), squeeze(residues.unfold(unsqueeze(part.log_sum_exp, 3)), 3)};
}

// The layer.

class SparseTransformer : public PatternAttention {
 public:
  explicit SparseTransformer(const AttentionConfig& config)
      : PatternAttention(config),
        w_(config, initialiser_),
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
    return sets_.sees(key_set(head), i, j);
  }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t heads = config().heads;
    const Projections::Projected x = w_.of(input.x);
    const Tensor q = split_heads(rotary_(x.query), heads);  // [B, H, N, dh]
    const Tensor k = split_heads(rotary_(x.key), heads), v = split_heads(x.value, heads);
    show_visible_weights(context, q, k, input.mask);
    if (mode_ != "heads" || heads == 1)
      return w_.output(merge_heads(attend(key_set(0), q, k, v, input.mask, context)));
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

  KeySet key_set(std::int64_t head) const {
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
    constexpr std::int64_t beyond_local = 2;  // strides: A1 covers i - l, i and i + l
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
    return patterns_.get({static_cast<std::int64_t>(set), length},
                         [&] { return sets_.blocks(set, length, order); });
  }

  Projections w_;
  KeySets sets_;
  std::string mode_;
};

}  // namespace

AttentionVariant sparse_transformer_variant() {
  return {"sparse_transformer",
          {.causal = true,
           .as_heads = true,
           .rotary = true,
           .reason = "the Sparse Transformer is defined for self-attention only"},
          make_layer<SparseTransformer>};
}

}  // namespace heed
