// Longformer: "The long-document Transformer", Beltagy et al. 2020, arXiv 2004.05150, section 3.
// Global tokens see every token and are seen by every token. Other tokens see themselves and a
// window of w tokens, w / 2 on each side, at steps of dil:
//
//   window(i, j) = |i - j| <= (w / 2) dil  and  (i - j) mod dil = 0
//   ordinary i:  softmax( q_i k_j / sqrt(dh) ) v_j      over window(i, j) or j global,  one softmax
//   global i:    softmax( qg_i kg_j / sqrt(dh) ) vg_j   over all j
//   O = merge(...) Wo                                   causal: and j <= i in both
//
// q, k, v = X Wq, X Wk, X Wv and qg, kg, vg = X Wqg, X Wkg, X Wvg, which start as copies of the
// former.
//
// Options: "window" w, even (512); "dilation" dil (1); "global_tokens" g (1): the first g tokens of
// a sequence are global. AttentionInput::global replaces them per sample and is read on the host.
//
// Time N (w dil + g) d, because all blocks of a dilated window are visited. Parameters 7 d^2.
// Cross-attention is not defined.

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "heed/autograd/autograd.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/block_patterns.h"

namespace heed {
namespace {

using Positions = std::vector<std::int64_t>;  // of the global tokens, ascending

class Longformer : public PatternAttention {
 public:
  explicit Longformer(const AttentionConfig& config)
      : PatternAttention(config),
        query_(*this, "query", config.width, config.inner_width(), config.bias, initialiser_),
        key_(*this, "key", config.width, config.inner_width(), config.bias, initialiser_),
        value_(*this, "value", config.width, config.inner_width(), config.bias, initialiser_),
        global_query_(*this, "global_query", config.width, config.inner_width(), config.bias, initialiser_),
        global_key_(*this, "global_key", config.width, config.inner_width(), config.bias, initialiser_),
        global_value_(*this, "global_value", config.width, config.inner_width(), config.bias, initialiser_),
        output_(*this, "output", config.inner_width(), config.width, config.bias, initialiser_),
        window_(config.options.take_integer("window", 512, 0, most_positions)),
        dilation_(config.options.take_integer("dilation", 1, 1, most_positions)),
        global_tokens_(config.options.take_integer("global_tokens", 1, 0, most_positions)) {
    check(window_ % 2 == 0, "setting 'window' must be even, got ", window_);
    copy_weight(query_, global_query_);
    copy_weight(key_, global_key_);
    copy_weight(value_, global_value_);
  }

 protected:
  bool takes_global_tokens() const override { return true; }

  bool sees(std::int64_t, std::int64_t i, std::int64_t j, std::int64_t length) const override {
    return sees(i, j, first_tokens(length)) || (i < global_tokens_ && (!config().causal || j <= i));
  }

  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t batch = input.x.size(0), length = input.x.size(1);
    if (!input.global.defined())
      return output_(merge_heads(attend(input.x, input.mask, first_tokens(length), context)));
    // Each sample has its own pattern.
    const std::vector<std::int32_t> is_global = input.global.to_vector<std::int32_t>();
    std::vector<Tensor> samples;
    Capture inside;
    Capture* const watcher = std::exchange(context.capture, context.capture ? &inside : nullptr);
    for (std::int64_t b = 0; b < batch; ++b) {
      Positions positions;
      for (std::int64_t i = 0; i < length; ++i)
        if (is_global[static_cast<std::size_t>(b * length + i)]) positions.push_back(i);
      const Tensor mask = input.mask.defined() ? slice(input.mask, 0, b, b + 1) : input.mask;
      samples.push_back(attend(slice(input.x, 0, b, b + 1), mask, positions, context));
    }
    context.capture = watcher;
    std::vector<Tensor> weights;
    for (const Capture::Entry& entry : inside.entries) weights.push_back(entry.value);
    if (watcher) show(context, "weights", concat(weights, 0));
    return output_(merge_heads(concat(samples, 0)));
  }

 private:
  static void copy_weight(const Linear& from, Linear& to) {
    if (ShapesOnly::active()) return;
    to.weight = parameter(Tensor::from(from.weight.to_vector<float>(), from.weight.shape()));
  }

  Positions first_tokens(std::int64_t length) const {
    Positions positions;
    for (std::int64_t i = 0; i < std::min(global_tokens_, length); ++i) positions.push_back(i);
    return positions;
  }

  std::int64_t reach() const { return window_ / 2 * dilation_; }

  /// Whether the ordinary query i sees key j.
  bool sees(std::int64_t i, std::int64_t j, const Positions& global) const {
    if (config().causal && j > i) return false;
    return (std::abs(i - j) <= reach() && (i - j) % dilation_ == 0) ||
           std::binary_search(global.begin(), global.end(), j);
  }

  /// [B, H, N, dh]
  Tensor attend(const Tensor& x, const Tensor& mask, const Positions& global, Context& context) {
    const std::int64_t heads = config().heads, length = x.size(1);
    AttentionOptions options = kernel_options(mask, context);
    options.pattern = pattern(length, global);
    const Tensor query = split_heads(rotary_(query_(x)), heads), key = split_heads(rotary_(key_(x)), heads);
    distances_.add_to(options, length, length, query);
    const Tensor out = attention(query, key, split_heads(value_(x), heads), options);
    if (global.empty()) {
      show_weights(context, query, key, options);
      return out;
    }

    // The rows of all global tokens at once; they replace the rows above.
    const auto count = static_cast<std::int64_t>(global.size());
    std::vector<std::int32_t> slots(static_cast<std::size_t>(length), -1);
    for (std::size_t g = 0; g < global.size(); ++g)
      slots[static_cast<std::size_t>(global[g])] = static_cast<std::int32_t>(g);
    const Tensor slot = Tensor::from(slots, {length}, x.device());
    const Tensor ids =
        Tensor::from(std::vector<std::int32_t>(global.begin(), global.end()), {count}, x.device());
    AttentionOptions all = kernel_options(mask, context);
    if (config().causal)
      all.mask = less_equal(unsqueeze(Tensor::arange(length, DType::i32, x.device()), 0), unsqueeze(ids, 1));
    const Tensor global_query =
        split_heads(rotary_.at(global_query_(index_select(x, 1, ids)), ids, length), heads);
    if (distances_.active()) all.bias = distances_.matrix_at(ids, length, global_query);
    const Tensor global_key = split_heads(rotary_(global_key_(x)), heads);
    const Tensor rows = attention(global_query, global_key, split_heads(global_value_(x), heads), all);
    const Tensor is_global = greater_equal(slot, Tensor::zeros({1}, DType::i32, x.device()));
    const auto in_place = [&](const Tensor& of_global, const Tensor& of_all) {
      return where(unsqueeze(is_global, 1), index_select(of_global, 2, slot), of_all);
    };
    show(context, "weights", [&] {
      return in_place(attention_weights(global_query, global_key, all),
                      attention_weights(query, key, options));
    });
    return in_place(rows, out);
  }

  std::shared_ptr<const BlockPattern> pattern(std::int64_t length, const Positions& global) {
    PatternCache::Key key = global;
    key.push_back(length);
    return patterns_.get(key, [&] {
      PatternDefinition definition{length, length, 1, 64, {}, {}};
      definition.entry = [&](std::int64_t, std::int64_t i, std::int64_t j) { return sees(i, j, global); };
      definition.content = [&, b = definition.block](std::int64_t, std::int64_t row, std::int64_t column) {
        if (config().causal && column > row) return BlockContent::none;
        const std::int64_t farthest = (std::abs(row - column) + 1) * b - 1;
        if (dilation_ == 1 && farthest <= reach() && (!config().causal || column < row))
          return BlockContent::all;
        const auto next = std::lower_bound(global.begin(), global.end(), column * b);
        const bool holds_global = next != global.end() && *next < (column + 1) * b;
        const std::int64_t gap = std::max<std::int64_t>(0, (std::abs(row - column) - 1) * b + 1);
        return holds_global || gap <= reach() || row == column ? BlockContent::some : BlockContent::none;
      };
      return make_block_pattern(definition);
    });
  }

  Part<Linear> query_, key_, value_, global_query_, global_key_, global_value_, output_;
  std::int64_t window_, dilation_, global_tokens_;
};

}  // namespace

AttentionVariant longformer_variant() {
  return {"longformer",
          {.causal = true,
           .as_heads = true,
           .rotary = true,
           .alibi = true,
           .reason = "Longformer is defined for self-attention only"},
          make_layer<Longformer>};
}

}  // namespace heed
