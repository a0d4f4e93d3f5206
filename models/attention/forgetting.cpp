// Forgetting attention: "Forgetting Transformer: softmax attention with a forget gate", Lin et al.
// 2025, arXiv 2503.02130, section 3. A gate per token and head fades all earlier tokens in the
// logits of the dot product. q, k, v = split(X Wq), split(X Wk), split(X Wv):
//
//   f_t  = sigmoid( x_t wf + bf )                     one number for each head
//   D_ij = log f_{j+1} + ... + log f_i = c_i - c_j    c_t = log f_1 + ... + log f_t
//   O    = merge( softmax( q k^T / sqrt(dh) + D ) v ) Wo        over the keys j <= i        (eq. 5)
//
// There is no N x N matrix. c_i and -c_j are extra columns of the queries and keys, next to columns
// of ones. c_i cancels in the softmax, but without it the gradients of the gates would be sums of
// rounding errors that grow with the length. For f16 and bf16 inputs, c and attention are computed
// in f32.
//
// bf starts from 0, the authors' default (fgate_bias_init is off), so f starts from 1/2. Departure:
// the paper's "Pro" form adds an output gate, norms of q, k and o, and shifts of k and v. The
// authors use no positions; rotary positions are possible. Padded tokens forget nothing. Decoding
// keeps all keys, as in the paper, with c as their last column.
//
// The paper has only the causal form. Without `causal`, an extension: D_ij = -|c_i - c_j|, the
// fading of the tokens in between. It joins attention to the past and to the future.
//
// Time N^2 d + N d^2, parameters 4 d^2 + H d. No settings.

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

class Forgetting : public Attention {
 public:
  explicit Forgetting(const AttentionConfig& config)
      : Attention(config),
        w_(config, initialiser_),
        forget_(config.width, config.heads, true, initialiser_),
        rotary_(config) {
    add_projections(w_);
    add_module("forget", forget_);
  }

  /// The cache holds the keys with their columns, [B, T, H (dh + 2)], in f32 where inputs are f16 or
  /// bf16.
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    const std::int64_t before = cache.extend_mask(input), heads = config().heads;
    const Parts x = parts_of(input, before);
    Tensor c = x.c;
    if (before > 0) {
      const Tensor last = split_heads(slice(cache.key, 1, before - 1, before), heads);  // [B, H, 1, dh + 2]
      c = c - select(last, 3, last.size(3) - 2) * scale();
    }
    cache.key = appended(std::move(cache.key), merge_heads(fading_key(x.key, -c)));
    cache.value = appended(std::move(cache.value), merge_heads(x.value));
    const Tensor out = attention(fading_query(x.query, c), split_heads(cache.key, heads),
                                 split_heads(cache.value, heads), masked_options(cache.mask, context));
    return project_output(out, input.x);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Parts x = parts_of(input, 0);
    show(context, "weights", [&] { return weights(x, input.mask); });
    return project_output(
        config().causal ? past(x, input.mask, context).output : both(x, input.mask, context), input.x);
  }

 private:
  /// Queries, keys and values [B, H, N, dh], and c [B, H, N].
  struct Parts {
    Tensor query, key, value, c;
  };

  double scale() const {
    const std::int64_t width = config().inner_width() / config().heads;
    return 1 / std::sqrt(static_cast<double>(width));
  }

  Parts parts_of(const AttentionInput& input, std::int64_t begin) {
    const DType precise = statistics_type(input.x.dtype());
    const auto heads_of = [&](const Tensor& t) { return cast(split_heads(t, config().heads), precise); };
    const std::vector<Tensor> x = Linear::each({&w_.query, &w_.key, &w_.value, &forget_}, input.x);
    const Tensor log_forget = -softplus(-cast(x[3], precise));  // log sigmoid(z) = -log(1 + e^-z)
    const Tensor c = cumulative_sum(without_padding(log_forget, input.mask), 1);  // [B, N, H]
    return {heads_of(rotary_(x[0], begin)), heads_of(rotary_(x[1], begin)), heads_of(x[2]),
            transpose(c, 1, 2)};
  }

  /// k and q with what is added to the logits, [B, H, N, dh + 2].
  Tensor fading_key(const Tensor& key, const Tensor& added) const {
    return pad(concat({key, unsqueeze(added / scale(), 3)}, 3), 3, 0, 1, 1);
  }
  Tensor fading_query(const Tensor& query, const Tensor& added) const {
    return concat({pad(query, 3, 0, 1, 1), unsqueeze(added / scale(), 3)}, 3);
  }

  AttentionOptions masked_options(const Tensor& mask, Context& context) const {
    AttentionOptions options = kernel_options(mask, context);
    options.scale = scale();
    options.causal = true;
    return options;
  }

  /// Over the keys up to each query.
  AttentionPart past(const Parts& x, const Tensor& mask, Context& context) const {
    return attention_part(fading_query(x.query, x.c), fading_key(x.key, -x.c), x.value,
                          masked_options(mask, context));
  }

  /// Over all keys: those up to the query and, in reverse order, those after it.
  Tensor both(const Parts& x, const Tensor& mask, Context& context) const {
    const std::int64_t length = x.c.size(2);
    AttentionPart before = past(x, mask, context);
    if (length == 1) return before.output;
    const auto firsts = [&](const Tensor& t) { return flip(slice(t, 2, 0, length - 1), 2); };
    const auto seconds = [&](const Tensor& t) { return flip(slice(t, 2, 1, length), 2); };
    const Tensor after_mask = mask.defined() ? contiguous(flip(slice(mask, 1, 1, length), 1)) : Tensor();
    AttentionPart after =
        attention_part(fading_query(firsts(x.query), -firsts(x.c)), fading_key(seconds(x.key), seconds(x.c)),
                       seconds(x.value), masked_options(after_mask, context));
    constexpr double nothing = -1e30;  // a softmax over -infinity alone would be NaN
    before.log_sum_exp = maximum(before.log_sum_exp, nothing);
    after.log_sum_exp = pad(maximum(flip(after.log_sum_exp, 2), nothing), 2, 0, 1, nothing);
    after.output = pad(flip(after.output, 2), 2, 0, 1);
    return join_attention(std::vector<AttentionPart>{before, after});
  }

  Tensor project_output(const Tensor& attended, const Tensor& like) const {
    return w_.output(cast(merge_heads(attended), like.dtype()));
  }

  /// [B, H, N, N], as defined.
  Tensor weights(const Parts& x, const Tensor& mask) const {
    const Tensor d = -abs(unsqueeze(x.c, 3) - unsqueeze(x.c, 2));
    Tensor allowed = Tensor::ones({1, 1, x.c.size(2), x.c.size(2)}, DType::i32, x.c.device());
    if (config().causal) allowed = tril(allowed);
    if (mask.defined()) allowed = allowed * unsqueeze(unsqueeze(mask, 1), 1);
    return masked_softmax(matmul(x.query, transpose(x.key, 2, 3)) * scale() + d, allowed);
  }

  Projections w_;
  Linear forget_;
  Rotary rotary_;
};

}  // namespace

AttentionVariant forgetting_variant() {
  return {"forgetting",
          {.causal = true, .rotary = true, .reason = "it forgets from token to token of one sequence"},
          make_layer<Forgetting>};
}

}  // namespace heed
