// Based: "Simple linear attention language models balance the recall-throughput tradeoff", Arora et
// al. 2024, arXiv 2402.18668, section 4. Linear attention whose features, of short queries and keys of
// f elements, give the second-order Taylor polynomial of the softmax's e^s:
//
//   O_i = sum_j (1 + s_ij + s_ij^2 / 2) v_j / sum_j (1 + s_ij + s_ij^2 / 2),   s_ij = q_i k_j / sqrt(f)
//       = phi(q_i) S / (phi(q_i) z),   S = sum_j phi(k_j)^T v_j,  z = sum_j phi(k_j)^T
//   phi(x) = [ 1, x / f^(1/4), { x_a x_b / sqrt(f) }_{a<b}, { x_a^2 / sqrt(2 f) } ]
//
// with q, k, v = split(X Wq), split(Y Wk), split(Y Wv), memory Y = X in self-attention, and O =
// merge(...) Wo. The paper writes all f^2 products x_a x_b; here a pair counts once, twice as much.
// A weight is at least 1/2. The causal form uses core/recurrence.h, and decoding keeps only S and z.
//
// The paper's models alternate these layers with exact attention in a short window; name the two
// mechanisms for alternating layers or as the parts of mixed_heads. The paper has only the causal form;
// the others, over all tokens or a memory, are extensions.
//
// Padded keys enter no sum. Dropout drops tokens from S; the paper drops none.
//
// Time N f^2 d / 2 + N d^2, memory N (H f^2 / 2 + d), parameters 2 d^2 + 2 H f d.
//
// Settings: "features" f (16).

#include <cmath>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

class Based : public Attention {
 public:
  explicit Based(const AttentionConfig& config)
      : Attention(config),
        features_(config.options.take_integer("features", 16, 1, 64)),
        query_(*this, "query", config.width, config.heads * features_, config.bias, initialiser_),
        key_(*this, "key", config.width, config.heads * features_, config.bias, initialiser_),
        value_(*this, "value", config.width, config.inner_width(), config.bias, initialiser_),
        output_(*this, "output", config.inner_width(), config.width, config.bias, initialiser_) {
    for (std::int32_t a = 0; a < features_; ++a)
      for (std::int32_t b = a; b < features_; ++b) {
        first_.push_back(a), second_.push_back(b);
        scales_.push_back((a == b ? std::sqrt(0.5) : 1) / std::sqrt(static_cast<double>(features_)));
      }
  }

  /// The cache holds S with z as its last column in `key` [B, H, m, dh + 1].
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (config().causal) return causal(input, &cache.key, context);
    if (!config().cross) return Attention::step(input, cache, context);
    if (!cache.key.defined()) cache.key = sums(input.memory, input.memory_mask, context);
    cache.of_memory = true;
    return reshape(output(matmul(phi(query_(by_memory(input))), cache.key), input.x), input.x.shape());
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Tensor& y = config().cross ? input.memory : input.x;
    const Tensor& mask = config().cross ? input.memory_mask : input.mask;
    show(context, "weights", [&] {
      Tensor weights = matmul(phi(query_(input.x)), transpose(keys(y, mask), 2, 3));
      if (config().causal) weights = tril(weights);
      return weights / maximum(sum(weights, -1, true), least_weight);
    });
    if (config().causal) return causal(input, nullptr, context);
    return output(matmul(phi(query_(input.x)), sums(y, mask, context)), input.x);
  }

 private:
  static constexpr double least_weight = 0.5;

  /// phi of x [B, N, H f]: [B, H, N, m].
  Tensor phi(const Tensor& x) const {
    const Tensor heads = cast(split_heads(x, config().heads), statistics_type(x.dtype()));
    const auto places = [&](const std::vector<std::int32_t>& list) {
      return Tensor::from(list, {static_cast<std::int64_t>(list.size())}).to(heads.device());
    };
    const Tensor scales =
        tensor_of(scales_, {static_cast<std::int64_t>(scales_.size())}, heads.dtype(), heads.device());
    const Tensor pairs =
        index_select(heads, 3, places(first_)) * index_select(heads, 3, places(second_)) * scales;
    const Tensor singles = pad(heads / std::sqrt(std::sqrt(static_cast<double>(features_))), 3, 1, 0, 1);
    return concat({singles, pairs}, 3);
  }

  Tensor keys(const Tensor& y, const Tensor& mask) const { return without_padding(phi(key_(y)), mask); }

  /// Values [B, H, M, dh + 1], whose last column of ones makes z the last column of S.
  Tensor values(const Tensor& y, Context& context) const {
    const Tensor v = cast(split_heads(value_(y), config().heads), statistics_type(y.dtype()));
    return pad(drop_tokens(v, config().dropout, context), 3, 0, 1, 1);
  }

  Tensor sums(const Tensor& y, const Tensor& mask, Context& context) const {
    return matmul(transpose(keys(y, mask), 2, 3), values(y, context));
  }

  Tensor causal(const AttentionInput& input, Tensor* state, Context& context) const {
    const Tensor& x = input.x;
    return output(
        recurrence_output({.query = phi(query_(x)), .key = keys(x, input.mask), .value = values(x, context)},
                          true, state),
        x);
  }

  /// O from phi(q) S and, as the last column, phi(q) z.
  Tensor output(const Tensor& read, const Tensor& like) const {
    const std::int64_t width = read.size(3) - 1;
    const Tensor total = maximum(slice(read, 3, width, width + 1), least_weight);
    return output_(merge_heads(cast(slice(read, 3, 0, width) / total, like.dtype())));
  }

  std::int64_t features_;  // f
  Part<Linear> query_, key_, value_, output_;
  std::vector<std::int32_t> first_, second_;  // of each pair
  std::vector<double> scales_;
};

}  // namespace

AttentionVariant based_variant() {
  return {"based", {.causal = true, .cross = true, .as_heads = true}, make_layer<Based>};
}

}  // namespace heed
