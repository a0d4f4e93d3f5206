// Fastformer, additive attention: Wu et al. 2021, arXiv 2108.09084, section 3, with the scale and
// biases of the authors' code. q = X Wq, k = X Wk, and v = q (query-value sharing) or X Wv. In head
// h, each head scores the whole vector q_i:
//
//   alpha_h = softmax_i( q_i wq_h / sqrt(dh) )   Q_h = sum_i alpha_{h,i} q_{i,h}  global query
//   p_{i,h} = Q_h * k_{i,h}                                                      element by element
//   beta_h  = softmax_i( p_i wk_h / sqrt(dh) )   K_h = sum_i beta_{h,i} p_{i,h}   global key
//   u_{i,h} = K_h * v_{i,h}                      O_i = merge(u_i) Wr + q_i
//
// Options: "share_qv" (true); "global_keys" G (1). Dropout drops tokens from both sums. Wr replaces
// Wo. With `bias`, the scores have biases too. Weights start from N(0, 0.02^2).
//
// Time and memory N d, with projections N d^2; parameters 3 d^2 + 2 H d (4 d^2 + 2 H d without
// sharing).
//
// Two ablations go beyond the paper. G = 0 removes the key: u_{i,h} = Q_h * v_{i,h}, parameters 2
// d^2 + H d. With G > 1 there are G global keys with their own scores wk_{g,h}, and each token
// chooses among them (G = 1 is the paper's form; time N G d, parameters 3 d^2 + (1 + G) H d):
//
//   c_{i,h} = softmax_g( q_{i,h} . K_{g,h} / sqrt(dh) )
//   u_{i,h} = (sum_g c_{i,h,g} K_{g,h}) * v_{i,h}
//
// Two extensions, also in linear time. Causal: both sums run over the prefix i <= t, so Q and K
// depend on t. Cross: q and v come from X, k from the memory; Q pools over X, K over the memory.
// Every query enters Q, so this cross-attention cannot decode token by token.

#include <algorithm>
#include <cmath>
#include <optional>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/tensor.h"
#include "heed/models/attention/attention.h"

namespace heed {

// Prefix pooling, for the causal form.

/// Softmax pooling of every prefix: out[r, t] = sum_{i <= t} e^{a_i} x_i / sum_{i <= t} e^{a_i},
/// for logits a [R, N] and values x [R, N, n]; the result is [R, N, n]. Time N n, stable for any
/// logits. Positions where `allowed` (i32 [R, N], undefined = all) is 0 do not count; a prefix
/// without counted positions gives 0.
Tensor prefix_pooling(const Tensor& logits, const Tensor& values, const Tensor& allowed = {});

namespace {

constexpr std::int64_t chunk = 64;
constexpr double nothing = -1e30;  // the logit of a position that does not count: e^-1e30 = 0

struct Pooled {
  Tensor value;       ///< [R, N, n]
  Tensor log_weight;  ///< log of the sum of e^a, [R, N]
};

/// 1 where column <= row.
Tensor lower_triangle(std::int64_t size, Device device) {
  const Tensor positions = Tensor::arange(size, DType::i32, device);
  return less_equal(unsqueeze(positions, 0), unsqueeze(positions, 1));
}

/// Inside a chunk, a matrix of weights pools the positions up to each one. Everything before the
/// chunk joins as one more value, with the total weight of its tokens. These values are prefixes of
/// the chunk totals, a sequence 64 times shorter.
Pooled pool_prefixes(const Tensor& logits, const Tensor& values) {
  const std::int64_t rows = logits.size(0), length = logits.size(1), width = values.size(2);
  const std::int64_t size = std::min(length, chunk), chunks = (length + size - 1) / size;
  const std::int64_t missing = chunks * size - length;
  const Tensor a = reshape(pad(logits, 1, 0, missing, nothing), {rows, chunks, 1, size});
  const Tensor x = reshape(pad(values, 1, 0, missing), {rows, chunks, size, width});

  const Tensor lower = lower_triangle(size, logits.device());
  const Tensor square = expand(a, {rows, chunks, size, size});
  const Tensor outside = equal(lower, Tensor::zeros({1}, DType::i32, logits.device()));
  Tensor log_weight = log_sum_exp(masked_fill(square, outside, nothing), -1);  // [R, chunks, size]
  Tensor value = matmul(masked_softmax(square, lower), x);                     // [R, chunks, size, n]

  if (chunks > 1) {
    const Pooled totals = pool_prefixes(select(log_weight, 2, size - 1), select(value, 2, size - 1));
    const auto before = [&](const Tensor& t, double first) {  // moves each total to the chunk after it
      return unsqueeze(pad(slice(t, 1, 0, chunks - 1), 1, 1, 0, first), 2);
    };
    const Tensor weight_before = before(totals.log_weight, nothing);         // [R, chunks, 1]
    const Tensor share = unsqueeze(sigmoid(weight_before - log_weight), 3);  // [R, chunks, size, 1]
    value = value + (before(totals.value, 0) - value) * share;
    const Tensor both[] = {expand(weight_before, log_weight.shape()), log_weight};
    log_weight = log_sum_exp(stack(both, 3), 3);
  }
  return {slice(reshape(value, {rows, chunks * size, width}), 1, 0, length),
          slice(reshape(log_weight, {rows, chunks * size}), 1, 0, length)};
}

// The layer.

class Fastformer : public Attention {
 public:
  explicit Fastformer(const AttentionConfig& config)
      : Attention(config),
        global_keys_(config.options.take_integer("global_keys", 1, 0, 1024)),
        query_(config.width, config.width, config.bias, initialiser_),
        query_score_(config.width, config.heads, config.bias, initialiser_),
        output_(config.width, config.width, config.bias, initialiser_) {
    const bool shared = config.options.take_bool("share_qv", true);
    check(global_keys_ > 0 || !config.cross,
          "without a key, cross-attention would see nothing of the memory; 'global_keys' must be positive");
    if (!shared) value_.emplace(config.width, config.width, config.bias, initialiser_);
    if (global_keys_ > 0) {
      key_.emplace(config.width, config.width, config.bias, initialiser_);
      key_score_.emplace(config.width, global_keys_ * config.heads, config.bias, initialiser_);
    }
    add("query", query_);
    if (key_) add("key", *key_);
    if (value_) add("value", *value_);
    add("query_score", query_score_);
    if (key_score_) add("key_score", *key_score_);
    add("output", output_);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    check(!config().cross, described("attention"),
          ": cross-attention 'fastformer' pools all queries and cannot decode token by token");
    return Attention::step(input, cache, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const std::int64_t heads = config().heads;
    const Tensor& memory = config().cross ? input.memory : input.x;
    const Tensor& memory_mask = config().cross ? input.memory_mask : input.mask;
    const Tensor query = query_(input.x);        // [B, N, d]
    const Tensor q = split_heads(query, heads);  // [B, H, N, dh]
    const Tensor v = value_ ? split_heads((*value_)(input.x), heads) : q;

    const Tensor global_query = pool("query_weights", query_score_(query), q, input.mask, context);
    if (!key_) return output_(merge_heads(global_query * v)) + query;

    const Tensor p = global_query * split_heads((*key_)(memory), heads);  // [B, H, M, dh]
    const Tensor scores = (*key_score_)(merge_heads(p));                  // [B, M, G H]
    std::vector<Tensor> keys;
    for (std::int64_t g = 0; g < global_keys_; ++g)
      keys.push_back(
          pool("key_weights", slice(scores, 2, g * heads, (g + 1) * heads), p, memory_mask, context));
    const Tensor u = chosen(keys, q, context) * v;
    return output_(merge_heads(u)) + query;
  }

 private:
  void add(const char* name, Linear& part) {
    part.weight = parameter(initialiser_.normal(part.weight.shape(), 0.02));
    add_module(name, part);
  }

  /// The mixture of the global keys, each [B, H, 1 or N, dh], that each token chooses.
  Tensor chosen(const std::vector<Tensor>& keys, const Tensor& q, Context& context) const {
    if (keys.size() == 1) return keys.front();
    std::vector<Tensor> matches;
    for (const Tensor& key : keys) matches.push_back(sum(q * key, -1));  // [B, H, N]
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const Tensor share = softmax(stack(matches, 3) * scale, -1);  // [B, H, N, G]
    show(context, "key_choice", share);
    Tensor mixed = keys.front() * slice(share, 3, 0, 1);
    for (std::size_t g = 1; g < keys.size(); ++g) {
      const auto column = static_cast<std::int64_t>(g);
      mixed = mixed + keys[g] * slice(share, 3, column, column + 1);
    }
    return mixed;
  }

  /// Softmax pooling of x [B, H, N, dh] by scores [B, N, H]: [B, H, 1, dh], or for every prefix [B,
  /// H, N, dh] in the causal form.
  Tensor pool(const char* name, const Tensor& scores, const Tensor& x, const Tensor& mask,
              Context& context) const {
    const std::int64_t batch = x.size(0), heads = x.size(1), length = x.size(2), width = x.size(3);
    const Tensor a = transpose(scores, 1, 2) / std::sqrt(static_cast<double>(width));  // [B, H, N]
    show(context, name, [&] { return pooling_weights(a, mask); });
    const Tensor values = drop_tokens(x, config().dropout, context);
    if (!config().causal) {
      const Tensor weights = mask.defined() ? masked_softmax(a, unsqueeze(mask, 1)) : softmax(a, -1);
      return matmul(unsqueeze(weights, 2), values);
    }
    const auto by_row = [&](const Tensor& t) { return reshape(t, {batch * heads, length}); };
    const Tensor allowed =
        mask.defined() ? by_row(expand(unsqueeze(mask, 1), {batch, heads, length})) : Tensor();
    const Tensor pooled = prefix_pooling(by_row(a), reshape(values, {batch * heads, length, width}), allowed);
    return reshape(pooled, x.shape());
  }

  /// alpha or beta [B, H, N]; in the causal form [B, H, N, N], a row for each prefix.
  Tensor pooling_weights(const Tensor& a, const Tensor& mask) const {
    Tensor allowed = mask.defined() ? unsqueeze(mask, 1) : Tensor::ones({1}, DType::i32, a.device());
    if (!config().causal) return masked_softmax(a, allowed);
    const Tensor at = Tensor::arange(a.size(2), DType::i32, a.device());
    if (mask.defined()) allowed = unsqueeze(allowed, 2);
    allowed = allowed * less_equal(unsqueeze(at, 0), unsqueeze(at, 1));
    return masked_softmax(expand(unsqueeze(a, 2), {a.size(0), a.size(1), a.size(2), a.size(2)}), allowed);
  }

  std::int64_t global_keys_;
  Linear query_, query_score_, output_;
  std::optional<Linear> key_, key_score_;  // absent without global keys
  std::optional<Linear> value_;            // absent when queries are the values
};

}  // namespace

Tensor prefix_pooling(const Tensor& logits, const Tensor& values, const Tensor& allowed) {
  check(logits.rank() == 2 && values.rank() == 3 && logits.size(0) == values.size(0) &&
            logits.size(1) == values.size(1),
        "prefix_pooling: expects logits [R, N] and values [R, N, n], got shapes ", logits.shape(), " and ",
        values.shape());
  if (logits.count() == 0) return values;
  if (!allowed.defined()) return pool_prefixes(logits, values).value;
  // Values are zeroed too: before the first counted position, all hidden positions have equal
  // weight.
  const Tensor hidden = equal(allowed, Tensor::zeros({1}, DType::i32, allowed.device()));
  return pool_prefixes(masked_fill(logits, hidden, nothing), masked_fill(values, unsqueeze(hidden, 2), 0))
      .value;
}

AttentionVariant fastformer_variant() {
  return {"fastformer",
          {.causal = true,
           .cross = true,
           .cross_by_step = false,
           .reason = "as cross-attention it pools all queries, which a decoder does not know yet"},
          make_layer<Fastformer>};
}

}  // namespace heed
