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

#include "heed/core/nearest_name.h"
#include "heed/models/attention/block_patterns.h"
#include "heed/models/attention/heads.h"
#include "heed/models/attention/residue_attention.h"
#include "heed/models/layers.h"

namespace heed {
namespace {

enum class KeySet { local, distant, both };  // A1, A2, their union

class SparseTransformer : public PatternAttention {
 public:
  explicit SparseTransformer(const AttentionConfig& config)
      : PatternAttention(config),
        initialiser_(config.seed),
        query_(config.width, config.width, config.bias, initialiser_),
        key_(config.width, config.width, config.bias, initialiser_),
        value_(config.width, config.width, config.bias, initialiser_),
        output_(config.width, config.width, config.bias, initialiser_),
        strided_(choose(config, "pattern", {"strided", "fixed"}) == "strided"),
        mode_(choose(config, "mode", {"heads", "interleaved", "merged"})),
        stride_(config.options.take_integer("stride", default_stride())),
        summary_(config.options.take_integer("summary", std::max<std::int64_t>(1, stride_ / 16))) {
    config.options.check_all_taken("attention 'sparse_transformer'");
    check(stride_ >= 1 && summary_ >= 1 && summary_ <= stride_, "attention 'sparse_transformer': stride ",
          stride_, " must be positive and summary ", summary_, " between 1 and the stride");
    add_module("query", query_);
    add_module("key", key_);
    add_module("value", value_);
    add_module("output", output_);
  }

 protected:
  bool sees(std::int64_t head, std::int64_t i, std::int64_t j, std::int64_t) const override {
    return in_set(set_of(head), i, j);
  }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t heads = config().heads;
    const Tensor q = split_heads(query_(input.x), heads);  // [B, H, N, dh]
    const Tensor k = split_heads(key_(input.x), heads), v = split_heads(value_(input.x), heads);
    if (mode_ != "heads" || heads == 1)
      return output_(merge_heads(attend(set_of(0), q, k, v, input.mask, context)));
    const auto half = [&](const Tensor& x, std::int64_t parity) { return slice(x, 1, parity, heads, 2); };
    const Tensor even = attend(KeySet::local, half(q, 0), half(k, 0), half(v, 0), input.mask, context);
    const Tensor odd = attend(KeySet::distant, half(q, 1), half(k, 1), half(v, 1), input.mask, context);
    std::vector<Tensor> in_order;
    for (std::int64_t h = 0; h < heads; ++h) in_order.push_back(select(h % 2 ? odd : even, 1, h / 2));
    return output_(merge_heads(stack(in_order, 1)));
  }

 private:
  static std::string choose(const AttentionConfig& config, std::string_view option,
                            const std::vector<std::string>& choices) {
    const std::string value = config.options.take_text(option, choices.front());
    check(std::find(choices.begin(), choices.end(), value) != choices.end(),
          "attention 'sparse_transformer': unknown ", option, " '", value, "'", suggest_name(value, choices));
    return value;
  }

  std::int64_t default_stride() const {
    const std::int64_t length = config().max_length;
    return length > 0 ? std::lround(std::ceil(std::sqrt(static_cast<double>(length)))) : 128;
  }

  KeySet set_of(std::int64_t head) const {
    if (mode_ == "merged") return KeySet::both;
    const std::int64_t turn = mode_ == "heads" ? head : config().layer;
    return turn % 2 == 0 ? KeySet::local : KeySet::distant;
  }

  bool is_summary(std::int64_t j) const { return j % stride_ >= stride_ - summary_; }

  /// The equations above; std::abs covers the extension to both directions.
  bool in_set(KeySet set, std::int64_t i, std::int64_t j) const {
    if (config().causal && j > i) return false;
    const bool local = strided_ ? std::abs(i - j) <= stride_ : i / stride_ == j / stride_;
    const bool distant = strided_ ? (i - j) % stride_ == 0 : is_summary(j);
    return (set != KeySet::distant && local) || (set != KeySet::local && distant);
  }

  Tensor attend(KeySet set, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                Context& context) {
    if (!strided_) return attend_fixed(set, q, k, v, mask, context);
    const auto options = [&](bool local) {
      AttentionOptions result = attention_options(mask, context);
      if (local)
        result.pattern = pattern(KeySet::local, key_order(KeySet::local, q.size(2)), q.size(2));
      else
        result.causal = config().causal;
      return result;
    };
    if (set == KeySet::local) return attention(q, k, v, options(true));
    if (set == KeySet::distant) return residue_attention(q, k, v, stride_, options(false));
    constexpr std::int64_t beyond_local = 2;  // strides: A1 has i - l, i and i + l
    const AttentionPart parts[] = {attention_part(q, k, v, options(true)),
                                   residue_attention_part(q, k, v, stride_, beyond_local, options(false))};
    return join_attention(parts);
  }

  Tensor attend_fixed(KeySet set, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                      Context& context) {
    const std::vector<std::int32_t> order = key_order(set, q.size(2));
    if (order.empty()) return Tensor::zeros(q.shape(), q.dtype(), q.device());
    const Tensor ids = Tensor::from(order, {static_cast<std::int64_t>(order.size())}, q.device());
    AttentionOptions options = attention_options(mask.defined() ? index_select(mask, 1, ids) : mask, context);
    options.pattern = pattern(set, order, q.size(2));
    return attention(q, index_select(k, 2, ids), index_select(v, 2, ids), options);
  }

  /// The keys that anybody sees: where some are seen by all, these come first, so that they fill blocks.
  std::vector<std::int32_t> key_order(KeySet set, std::int64_t length) const {
    std::vector<std::int32_t> summaries, others;
    for (std::int64_t j = 0; j < length; ++j)
      (!strided_ && set != KeySet::local && is_summary(j) ? summaries : others)
          .push_back(static_cast<std::int32_t>(j));
    if (set != KeySet::distant) summaries.insert(summaries.end(), others.begin(), others.end());
    return summaries;
  }

  std::shared_ptr<const BlockPattern> pattern(KeySet set, const std::vector<std::int32_t>& order,
                                              std::int64_t length) {
    return patterns_.get({static_cast<std::int64_t>(set), length},
                         [&] { return make_pattern(set, length, order); });
  }

  std::shared_ptr<const BlockPattern> make_pattern(KeySet set, std::int64_t length,
                                                   const std::vector<std::int32_t>& order) const {
    const auto keys = static_cast<std::int64_t>(order.size());
    PatternDefinition definition{length, keys, 1, 64, {}, {}};
    const auto position = [&order](std::int64_t column) { return order[static_cast<std::size_t>(column)]; };
    definition.entry = [&](std::int64_t, std::int64_t i, std::int64_t j) {
      return in_set(set, i, position(j));
    };
    definition.content = [&, b = definition.block](std::int64_t, std::int64_t row, std::int64_t column) {
      const std::int64_t first = row * b, last = std::min(length, first + b) - 1;
      for (std::int64_t j = column * b; j < std::min(keys, (column + 1) * b); ++j)
        if (may_see(set, first, last, position(j))) return BlockContent::some;
      return BlockContent::none;
    };
    return make_block_pattern(definition);
  }

  /// Whether some query from `first` to `last` may see key j, in A1 or in a fixed set: never wrong where it
  /// says no.
  bool may_see(KeySet set, std::int64_t first, std::int64_t last, std::int64_t j) const {
    if (config().causal && j > last) return false;
    if (set != KeySet::local && is_summary(j)) return true;
    return strided_ ? j >= first - stride_ && j <= last + stride_
                    : j / stride_ >= first / stride_ && j / stride_ <= last / stride_;
  }

  Initialiser initialiser_;
  Linear query_, key_, value_, output_;
  bool strided_;
  std::string mode_;
  std::int64_t stride_, summary_;
  PatternCache patterns_;
};

}  // namespace

AttentionVariant sparse_transformer_variant() {
  return {"sparse_transformer",
          {.causal = true, .reason = "the Sparse Transformer is defined for self-attention only"},
          [](const AttentionConfig& config) {
            return std::unique_ptr<Attention>(std::make_unique<SparseTransformer>(config));
          }};
}

}  // namespace heed
