// ABC, attention with bounded-memory control: Peng et al. 2022, arXiv 2110.02488, in its learned
// form ABC_MLP (section 4). Each token writes its key and value into n slots with learned weights,
// and queries attend to the slots. q, k, v = split(X Wq), split(Y Wk), split(Y Wv), with memory Y =
// X in self-attention:
//
//   alpha_j = e^( y_j Ws + bs )                                    for every head and slot
//   K~ = sum_j phi_j^T k_j,   V~ = sum_j phi_j^T v_j               phi_j = alpha_j / sum_j alpha_j
//   O  = merge( softmax( q K~^T / sqrt(dh) ) V~ ) Wo               over the n slots
//   causal: the sums, phi's own included, run over j <= i
//
// Decoding keeps only the slots. The causal form computes both products with a slot as recurrences
// (core/recurrence.h), so it needs no memory per token. For this, y_j Ws + bs is clamped to +-32,
// as in flash-linear-attention. The paper leaves open how heads share the control; a separate
// control per head and the sums of causal phi also follow flash-linear-attention.
//
// Padded tokens write nothing. Dropout acts on the weights of the slots.
//
// Time N n d + N d^2, memory N (H n + d), parameters 4 d^2 + H n d.
//
// Settings: "slots" n (32).

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

constexpr double most_control = 32;  // of |log alpha|

class BoundedMemory : public Attention {
 public:
  explicit BoundedMemory(const AttentionConfig& config)
      : Attention(config),
        w_(config, initialiser_),
        slots_(config.options.take_integer("slots", 32, 1, 4096)),
        control_(config.width, config.heads * slots_, config.bias, initialiser_) {
    add_projections(w_);
    add_module("control", control_);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (config().causal) return causal(input, cache, context);
    if (!config().cross) return Attention::step(input, cache, context);
    if (!cache.key.defined()) {
      const Memory memory = written(input.memory, input.memory_mask);
      cache.key = memory.keys, cache.value = memory.values;
    }
    cache.of_memory = true;
    const Tensor out = read(w_.query(by_memory(input)), {cache.key, cache.value, {}}, context);
    return reshape(out, input.x.shape());
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    if (config().causal) {
      AttentionCache none;
      return causal(input, none, context);
    }
    const bool cross = config().cross;
    return read(w_.query(input.x),
                written(cross ? input.memory : input.x, cross ? input.memory_mask : input.mask), context);
  }

 private:
  /// K~ and V~ [B, H, n, dh], and phi [B, H, n, M].
  struct Memory {
    Tensor keys, values, phi;
  };

  /// log alpha [B, H, M, n].
  Tensor controls(const Tensor& y) const {
    return clamp(cast(split_heads(control_(y), config().heads), statistics_type(y.dtype())), -most_control,
                 most_control);
  }

  Memory written(const Tensor& y, const Tensor& mask) const {
    const Projections::Projected projected = w_.of_memory(y);
    const Tensor logits = transpose(controls(y), 2, 3);
    const Tensor phi =
        cast(mask.defined() ? masked_softmax(logits, unsqueeze(unsqueeze(mask, 1), 1)) : softmax(logits),
             y.dtype());
    return {matmul(phi, split_heads(projected.key, config().heads)),
            matmul(phi, split_heads(projected.value, config().heads)), phi};
  }

  Tensor read(const Tensor& queries, const Memory& memory, Context& context) {
    const Tensor query = split_heads(queries, config().heads);
    const AttentionOptions options = kernel_options({}, context);
    if (memory.phi.defined())
      show(context, "weights",
           [&] { return matmul(attention_weights(query, memory.keys, options), memory.phi); });
    return w_.output(merge_heads(attention(query, memory.keys, memory.values, options)));
  }

  /// The cache holds the sums of k^T alpha in `key` [B, H, dh, n], and in `value` [B, H, n, dh + 1]
  /// those of alpha^T v with those of alpha as the last column.
  Tensor causal(const AttentionInput& input, AttentionCache& cache, Context& context) {
    const DType precise = statistics_type(input.x.dtype());
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, config().heads), precise); };
    const Projections::Projected x = w_.of(input.x);
    const Tensor query = heads_of(x.query), value = heads_of(x.value);
    const Tensor alpha = without_padding(exp(controls(input.x)), input.mask);
    Tensor total = cumulative_sum(alpha, 2);  // [B, H, N, n]
    const std::int64_t width = value.size(3);
    if (cache.value.defined()) total = total + transpose(slice(cache.value, 3, width, width + 1), 2, 3);
    total = divisor(total);
    // Dividing both parts of the quotient by the largest alpha keeps products of large q and k in range.
    const double largest = std::exp(most_control),
                 scale = 1 / std::sqrt(static_cast<double>(query.size(3))) / largest;
    const Tensor logits = recurrence_output({.query = query * scale, .key = heads_of(x.key), .value = alpha},
                                            true, &cache.key) /
                          (total / largest);
    const Tensor reading = maybe_dropout(softmax(logits), config().dropout, context) / total;
    show(context, "weights", [&] { return tril(matmul(reading, transpose(alpha, 2, 3))); });
    const Tensor sums = recurrence_output({.query = reading, .key = alpha, .value = pad(value, 3, 0, 1, 1)},
                                          true, &cache.value);
    return w_.output(cast(merge_heads(slice(sums, 3, 0, width)), input.x.dtype()));
  }

  Projections w_;
  std::int64_t slots_;  // n
  Linear control_;      // Ws, bs
};

}  // namespace

AttentionVariant abc_variant() {
  return {"abc", {.causal = true, .cross = true, .as_heads = true}, make_layer<BoundedMemory>};
}

}  // namespace heed
