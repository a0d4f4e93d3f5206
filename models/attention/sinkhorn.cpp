// Sparse Sinkhorn attention: "Sparse Sinkhorn attention", Tay, Bahri, Yang, Metzler and Juan 2020,
// arXiv 2002.11296, section 3. Each block of b tokens attends to itself and to one other block,
// which a learned sorting assigns to it. X_i are the blocks of the inputs, n_B = ceil(N / b) in
// number. In each head:
//
//   R     = relu( mean(X_i) W1 + c1 ) W2 + c2,  the first n_B columns   [n_B, n_B]   (section 3.1)
//   P     = Sinkhorn( (R + Gumbel noise) / tau ):  rows and columns divided by their sums in turn,
//           in logarithms                                                          (section 3.1.1)
//   K'_i  = sum_j P_ij K_j,  V'_i = sum_j P_ij V_j                   sorted blocks   (section 3.2)
//   O_i   = softmax( Q_i [K'_i; K_i]^T / sqrt(dh) ) [V'_i; V_i]      merged, times Wo
//
// Causal: P_ij = 0 unless j < i. R comes from the mean of all tokens up to the first of block i.
// Columns are divided by their sums over the rows so far. Within its block a token sees earlier
// tokens.
//
// Noise is added only in training. Departures: R uses the mean of a block instead of the paper's
// sum, so its size does not depend on b. Others' code has another relu around R, which would keep
// blocks from being pushed away. Padding enters neither means nor sorted blocks, and blocks that
// hold only padding are not sorted. Blocks count positions from the beginning of the text.
//
// Time N b d + n_B N d + N d^2, memory N (b + d), parameters 5 d^2 + H ceil(L / b) d with L =
// max_length.
//
// Settings: "block" b (64); "iterations" of both divisions (7); "temperature" tau (0.75); "noise"
// (true).

#include <algorithm>
#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/sorting.h"

namespace heed {
namespace {

constexpr double excluded = -1e30;  // the logarithm of 0

class Sinkhorn : public Attention {
 public:
  explicit Sinkhorn(const AttentionConfig& config)
      : Attention(config),
        w_(config, initialiser_),
        block_(config.options.take_integer("block", 64, 1, 4096)),
        iterations_(config.options.take_integer("iterations", 7, 1, 64)),
        temperature_(config.options.take_number("temperature", 0.75, 1e-3, 1e3)),
        noise_(config.options.take_bool("noise", true)),
        most_blocks_(ceil_div(config.max_length, block_)),
        hidden_(config.width, config.width, true, initialiser_),
        order_(config.width, config.heads * most_blocks_, true, initialiser_) {
    add_projections(w_);
    add_module("hidden", hidden_);
    add_module("order", order_);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t batch = input.x.size(0), length = input.x.size(1), heads = config().heads;
    check_length(length);
    const std::int64_t width = std::min(block_, length), count = ceil_div(length, width);
    const DType type = input.x.dtype(), precise = statistics_type(type);

    const Tensor x = cast(into_blocks(input.x, width), precise);  // [B, n, b, d]
    const Tensor all = Tensor::ones({1, length}, DType::i32, input.x.device());
    const Tensor real = expand(into_blocks(input.mask.defined() ? input.mask : all, width),
                               {batch, count, width});                                    // i32 [B, n, b]
    const Tensor sorting = sorted(where(unsqueeze(real, 3), x, 0), real, type, context);  // [B, H, n, n]

    const Projections::Projected projected = w_.of(input.x);
    const auto split_into_blocks = [&](const Tensor& t) {  // [B, N, d] -> [B, H, n, b, dh]
      const Tensor blocks = into_blocks(t, width);
      return permute(reshape(blocks, {batch, count, width, heads, t.size(2) / heads}), {0, 3, 1, 2, 4});
    };
    const auto of_block = [&](const Tensor& t) {  // [B, H, n, rows, dh] -> [B n, H, rows, dh]
      return reshape(transpose(t, 1, 2), {batch * count, heads, t.size(3), t.size(4)});
    };
    const auto with_sorted = [&](const Tensor& t) {
      const Tensor own = where(reshape(real, {batch, 1, count, width, 1}), split_into_blocks(t), 0);
      const Tensor flat = reshape(own, {batch, heads, count, width * own.size(4)});
      return of_block(concat({reshape(matmul(sorting, flat), own.shape()), own}, 3));
    };
    const Tensor query = of_block(split_into_blocks(projected.query)), key = with_sorted(projected.key);
    AttentionOptions options = kernel_options({}, context);
    options.mask = allowed(real);
    const Tensor attended = attention(query, key, with_sorted(projected.value), options);  // [B n, H, b, dh]
    show(context, "sorting", sorting);
    show(context, "weights",
         [&] { return weights(attention_weights(query, key, options), sorting, real, length); });
    const Tensor merged =
        reshape(merge_heads(attended), {batch, count, width, attended.size(1) * attended.size(3)});
    return w_.output(from_blocks(merged, length));
  }

 private:
  /// Whether block j may be assigned to block i: i32 [B, 1, n, n].
  Tensor sortable(const Tensor& real) const {
    const Tensor exists = max(real, 2);  // [B, n]
    const Tensor pairs = unsqueeze(exists, 2) * unsqueeze(exists, 1);
    const Tensor at = Tensor::arange(real.size(1), DType::i32, real.device());
    return unsqueeze(config().causal ? pairs * less(unsqueeze(at, 0), unsqueeze(at, 1)) : pairs, 1);
  }

  /// P [B, H, n, n], from blocks of inputs [B, n, b, d] with zeros at padding.
  Tensor sorted(const Tensor& x, const Tensor& real, DType type, Context& context) {
    Tensor sums = sum(x, 2), tokens = cast(sum(real, 2, true), x.dtype());  // [B, n, d], [B, n, 1]
    if (config().causal) {  // of the blocks before, and of the first token
      const auto before = [](const Tensor& t) {
        return pad(slice(cumulative_sum(t, 1), 1, 0, t.size(1) - 1), 1, 1, 0);
      };
      sums = before(sums) + select(x, 2, 0);
      tokens = before(tokens) + cast(slice(real, 2, 0, 1), x.dtype());
    }
    const Tensor mean = cast(sums / maximum(tokens, 1), type);
    const std::int64_t batch = x.size(0), count = x.size(1);
    const Tensor logits = cast(order_(relu(hidden_(mean))), x.dtype());  // [B, n, H most]
    Tensor r = slice(permute(reshape(logits, {batch, count, config().heads, most_blocks_}), {0, 2, 1, 3}), 3,
                     0, count);
    if (context.training && noise_) {
      const Tensor u = uniform(r.shape(), 1e-6, 1, context.random.next(), r.dtype(), r.device());
      r = r - log(-log(u));
    }
    const Tensor may = sortable(real);
    r = where(may, r / temperature_, excluded);
    for (std::int64_t i = 0; i < iterations_; ++i) {
      r = where(may, r - log_sum_exp(r, 3, true), excluded);
      r = where(may, r - of_columns(r), excluded);
    }
    return cast(exp(r), type);
  }

  /// The logarithm of the column sums; in the causal form over the rows so far.
  Tensor of_columns(const Tensor& r) const {
    if (!config().causal) return log_sum_exp(r, 2, true);
    return log(maximum(cumulative_sum(exp(r), 2), 1e-30));  // rows have been divided: no r is above 0
  }

  /// i32 [B n, 1, b, 2 b]: which of the sorted and of the own keys each query sees.
  Tensor allowed(const Tensor& real) const {
    const std::int64_t batch = real.size(0), count = real.size(1), width = real.size(2);
    // A sorted key exists if any block that may be assigned has one at that place.
    const Tensor may = cast(squeeze(sortable(real), 1), DType::f32);  // [B, n, n]
    const Tensor brought = greater(matmul(may, cast(real, DType::f32)), 0);
    const Tensor at = Tensor::arange(width, DType::i32, real.device());
    Tensor own = expand(unsqueeze(real, 2), {batch, count, width, width});
    if (config().causal) own = own * less_equal(unsqueeze(at, 0), unsqueeze(at, 1));
    const Tensor both = concat({expand(unsqueeze(brought, 2), {batch, count, width, width}), own}, 3);
    return reshape(both, {batch * count, 1, width, 2 * width});
  }

  /// Weights inside the blocks [B n, H, b, 2 b] -> [B, H, N, N] between the tokens.
  Tensor weights(const Tensor& in_blocks, const Tensor& sorting, const Tensor& real,
                 std::int64_t length) const {
    const std::int64_t batch = real.size(0), count = real.size(1), width = real.size(2),
                       heads = config().heads;
    const Tensor by_block = reshape(in_blocks, {batch, count, heads, width, 2 * width});
    const Tensor own = eye(count, sorting.dtype(), sorting.device());
    const Tensor pairs = einsum("bihqt,bhij->bhiqjt", {slice(by_block, 4, 0, width), sorting}) +
                         einsum("bihqt,ij->bhiqjt", {slice(by_block, 4, width, 2 * width), own});
    const Tensor seen = where(reshape(real, {batch, 1, 1, 1, count, width}), pairs, 0);
    const Tensor whole = reshape(seen, {batch, heads, count * width, count * width});
    return slice(slice(whole, 2, 0, length), 3, 0, length);
  }

  Projections w_;
  std::int64_t block_, iterations_;
  double temperature_;
  bool noise_;
  std::int64_t most_blocks_;  // ceil(L / b)
  Linear hidden_, order_;     // W1, c1 and W2, c2
};

}  // namespace

AttentionVariant sinkhorn_variant() {
  return {"sinkhorn",
          {.causal = true, .any_length = false, .reason = "it sorts the blocks of one sequence"},
          make_layer<Sinkhorn>};
}

}  // namespace heed
