// Multi-head scaled dot-product attention: "Attention is all you need", Vaswani et al. 2017, arXiv
// 1706.03762, sections 3.2.1 - 3.2.3. With heads of width dh = d / H, memory Y = X in self-attention:
//
//   q = split(X Wq),  k = split(Y Wk),  v = split(Y Wv)         [B, H, N or M, dh]
//   A = softmax( q k^T / sqrt(dh) )  over the allowed keys      (eq. 1)
//   O = merge(A v) Wo
//
// Keys are allowed where they are no padding and, in the causal form, not later than the query.
// Time N M d + (N + M) d^2, parameters 4 d^2; the fused kernel holds no N x M matrix.

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/heads.h"

namespace heed {
namespace {

class DotProductAttention : public Attention {
 public:
  explicit DotProductAttention(const AttentionConfig& config)
      : Attention(config), initialiser_(config.seed), w_(config, initialiser_) {
    add_projections(w_);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (config().cross) {
      // The memory is the same at every step, so it is projected once.
      if (!cache.key.defined()) cache.key = w_.key(input.memory), cache.value = w_.value(input.memory);
      cache.of_memory = true;
      return reshape(attend(by_memory(input), cache.key, cache.value, input.memory_mask, context),
                     input.x.shape());
    }
    const std::int64_t before = cache.key.defined() ? cache.key.size(1) : 0;
    cache.extend_mask(input, before);
    cache.key = appended(std::move(cache.key), w_.key(input.x));
    cache.value = appended(std::move(cache.value), w_.value(input.x));
    return attend(input.x, cache.key, cache.value, cache.mask, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Tensor& memory = config().cross ? input.memory : input.x;
    const Tensor key = w_.key(memory), value = w_.value(memory);
    return attend(input.x, key, value, config().cross ? input.memory_mask : input.mask, context);
  }

 private:
  /// Keys and values [B, M, d].
  Tensor attend(const Tensor& x, const Tensor& keys, const Tensor& values, const Tensor& key_mask,
                Context& context) {
    const Tensor key = split_heads(keys, config().heads), value = split_heads(values, config().heads);
    AttentionOptions options = kernel_options(key_mask, context);
    options.causal = config().causal;
    const Tensor query = split_heads(w_.query(x), config().heads);
    show_weights(context, query, key, options);
    return w_.output(merge_heads(attention(query, key, value, options)));
  }

  Initialiser initialiser_;
  Projections w_;
};

}  // namespace

AttentionVariant dot_product_variant() {
  return {
      "dot_product", {.causal = true, .cross = true, .as_heads = true}, [](const AttentionConfig& config) {
        return std::unique_ptr<Attention>(std::make_unique<DotProductAttention>(config));
      }};
}

}  // namespace heed
