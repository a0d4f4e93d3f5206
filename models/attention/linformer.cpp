// Linformer: "Linformer: Self-Attention with Linear Complexity", Wang, Li, Khabsa, Fang and Ma
// 2020, arXiv 2006.04768, section 4. Before the softmax, learned matrices E and F sum keys and
// values along the length, from M positions to k. Memory is Y = X in self-attention:
//
//   q  = split(X Wq),  keys = split(Y Wk),  values = split(Y Wv)  [B, H, N or M, dh], 0 at padding
//   kb = E[:, 0:M] keys,  vb = F[:, 0:M] values                   [B, H, k, dh]       (eq. 7)
//   O  = merge( softmax( q kb^T / sqrt(dh) ) vb ) Wo
//
// The k sums are never masked. There is no causal form, because each sum mixes all positions. Time
// N k d + N d^2, memory N d + k d (fused), parameters 4 d^2 + 2 k L with L = max_length.
//
// Settings: k (default 256, at most L), and the sharing of section 4: per_head (false: E and F [k,
// L] serve all heads; true: [H, k, L]), share_kv (false; true: F = E), layerwise (false; true: one
// E, from the first Linformer layer, serves keys, values, heads and all layers of the stack). E and
// F start normal with variance 1 / k. Shorter inputs use the first columns.

#include <algorithm>
#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"

namespace heed {
namespace {

class LinformerAttention : public Attention {
 public:
  explicit LinformerAttention(const AttentionConfig& config) : Attention(config), w_(config, initialiser_) {
    const std::int64_t k =
        config.options.take_integer("k", std::min<std::int64_t>(256, config.max_length), 1, most_units);
    const bool share_kv = config.options.take_bool("share_kv", false);
    const bool per_head = config.options.take_bool("per_head", false);
    const bool layerwise = config.options.take_bool("layerwise", false);
    check(!layerwise || !per_head, "with 'layerwise' all heads share E; drop 'per_head'");
    add_projections(w_);
    const Shape shape = per_head ? Shape{config.heads, k, config.max_length} : Shape{k, config.max_length};
    const double deviation = 1 / std::sqrt(static_cast<double>(k));
    if (layerwise) first_ = dynamic_cast<const LinformerAttention*>(config.first);
    check(!first_ || first_->e_.shape() == shape,
          "with 'layerwise' all layers have the same k and the same sharing as the first");
    if (first_) return;
    add_parameter("E", e_, initialiser_.normal(shape, deviation));
    if (!share_kv && !layerwise) add_parameter("F", f_, initialiser_.normal(shape, deviation));
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().cross) return Attention::step(input, cache, context);
    if (!cache.key.defined()) project(input.memory, input.memory_mask, cache.key, cache.value);
    cache.of_memory = true;
    return reshape(attend(by_memory(input), cache.key, cache.value, context), input.x.shape());
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    Tensor kb, vb;
    project(config().cross ? input.memory : input.x, config().cross ? input.memory_mask : input.mask, kb, vb);
    return attend(input.x, kb, vb, context);
  }

 private:
  void project(const Tensor& memory, const Tensor& mask, Tensor& kb, Tensor& vb) const {
    check_length(memory.size(1));
    const Tensor& e = first_ ? first_->e_ : e_;
    const Projections::Projected projected = w_.of_memory(memory);
    kb = shorten(e, projected.key, mask);
    vb = shorten(f_.defined() ? f_ : e, projected.value, mask);
  }

  /// E[:, 0:M] x with the rows of padding 0: x [B, M, d] -> [B, H, k, dh].
  Tensor shorten(const Tensor& e, const Tensor& x, const Tensor& mask) const {
    const Tensor real = without_padding(x, mask), columns = slice(e, -1, 0, x.size(1));
    if (columns.rank() == 3) return matmul(columns, split_heads(real, config().heads));
    return split_heads(matmul(columns, real), config().heads);  // one product for all heads
  }

  Tensor attend(const Tensor& x, const Tensor& kb, const Tensor& vb, Context& context) const {
    const AttentionOptions options = kernel_options({}, context);
    const Tensor query = split_heads(w_.query(x), config().heads);
    show_weights(context, query, kb, options);  // over the k sums
    return w_.output(merge_heads(attention(query, kb, vb, options)));
  }

  Projections w_;
  // [k, L] or [H, k, L]; f_ is undefined when E serves both
  Tensor e_, f_;
  const LinformerAttention* first_ = nullptr;  // the layer whose E this one shares; null: its own E
};

}  // namespace

AttentionVariant linformer_variant() {
  return {"linformer",
          {.cross = true,
           .any_length = false,
           .as_heads = true,
           .reason = "each of its k sums along the length mixes all positions, past and future"},
          make_layer<LinformerAttention>};
}

}  // namespace heed
