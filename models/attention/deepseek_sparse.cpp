// DeepSeek sparse attention: "DeepSeek-V3.2", DeepSeek-AI 2025, arXiv 2512.02556, section 2.1. A small
// indexer scores every key for every query, and attention is over the k keys with the highest scores:
//
//   I_ts = sum_j w_tj relu( a_tj . b_s ) / sqrt(m n)                     m heads of width n (eq. 1)
//   a = split(X Wa),  b = LN(X Wb),  w = X Ww                            b: one for all heads
//   O = merge( softmax( q k^T / sqrt(dh) ) v ) Wo   over the k largest I_ts, of keys not later (eq. 2)
//
// The choice has no gradient. The indexer learns to tell what attention looks at, from a loss with the
// weight "beta", where S_t are the keys chosen and p is the mean of the softmax over the heads:
//
//   L = mean over t of KL( p_t || softmax of I_ts over s in S_t )                               (eq. 4)
//
// p and X are constants for this loss: it trains the indexer alone, as in the paper, and nothing else does.
// If k is at least the length, all keys are in S_t and attention is dense, as in the paper's first stage
// (eq. 3), in which only the indexer learns; a model that is trained further with a smaller k is in its
// second. LN, the root and where rotary positions turn follow the authors' code.
//
// Departures: attention is the dot product, instead of latent attention whose query also gives a. The loss
// is a mean, not a sum. Rotary positions turn all of a and b, instead of half; b has no Hadamard transform
// and keeps its precision. The paper has n = 128, m = 64, k = 2,048. Without `causal`, an extension: later
// keys can be chosen too. Scores of 0 are frequent; among equal ones the earlier keys are chosen.
//
// A pass over a sequence holds the scores and masks what is not chosen: time N^2 (d + m n) + N d^2, memory
// m N^2. A decoding step reads M n m numbers of the indexer's keys and k keys and values. Parameters 4 d^2
// and about m n d.
//
// Settings: "tokens" k (64); "index_heads" m (4); "index_width" n (32); "beta" (1);
// "qk_norm" and "value_residual" (both false; shared/sink_and_gate.h).

#include <cmath>
#include <limits>

#include "heed/autograd/graph.h"
#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/chosen_blocks.h"
#include "heed/models/attention/shared/sink_and_gate.h"
#include "heed/models/positions.h"

namespace heed {
namespace {

class LightningIndexer : public Module {
 public:
  LightningIndexer(const AttentionConfig& config, Initialiser& initialiser)
      : heads_(config.options.take_integer("index_heads", 4, 1, 1024)),
        width_(config.options.take_integer("index_width", 32, 1, 4096)),
        query_(*this, "query", config.width, heads_ * width_, config.bias, initialiser),
        key_(*this, "key", config.width, width_, config.bias, initialiser),
        weight_(*this, "weight", config.width, heads_, false, initialiser),
        norm_(*this, "norm", width_),
        rotary_(of_width(config, width_)) {}

  /// b [B, N, n] of x [B, N, d], whose first position is `begin`.
  Tensor keys(const Tensor& x, std::int64_t begin) { return rotary_(norm_(key_(x)), begin); }

  /// I [B, 1, N, M] of x [B, N, d] and keys [B, M, n]; the last query is at the last key.
  Tensor scores(const Tensor& x, const Tensor& keys) {
    const Tensor query = split_heads(rotary_(query_(x), keys.size(1) - x.size(1)), heads_);
    const Tensor weight = unsqueeze(transpose(weight_(x), 1, 2), 3);  // [B, m, N, 1]
    const double scale = 1 / std::sqrt(static_cast<double>(heads_ * width_));
    return sum(relu(matmul(query, transpose(unsqueeze(keys, 1), 2, 3))) * (weight * scale), 1, true);
  }

 private:
  static AttentionConfig of_width(AttentionConfig config, std::int64_t width) {
    config.head_width = width;
    return config;
  }

  std::int64_t heads_, width_;  // m, n
  Part<Linear> query_, key_, weight_;
  Part<LayerNorm> norm_;
  Rotary rotary_;
};

class DeepSeekSparse : public Attention {
 public:
  explicit DeepSeekSparse(const AttentionConfig& config)
      : Attention(config),
        tokens_(config.options.take_integer("tokens", 64, 1, most_positions)),
        beta_(config.options.take_number("beta", 1, 0, 1e6)),
        w_(config, initialiser_),
        indexer_(*this, "indexer", config, initialiser_),
        rotary_(config) {
    add_projections(w_);
    changed_ = ProjectionOptions(*this, ProjectionOptions::take(config));
  }

  /// The cache holds the indexer's keys in a part.
  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    if (!config().causal) return Attention::step(input, cache, context);
    cache.parts.resize(1);
    const std::int64_t before = cache.extend_mask(input);
    const Projections::Projected x = changed_(w_.of(input.x), context);
    cache.key = appended(std::move(cache.key), rotary_(x.key, before));
    cache.value = appended(std::move(cache.value), x.value);
    cache.parts[0].key = appended(std::move(cache.parts[0].key), indexer_.keys(input.x, before));
    Tensor scores;
    if (cache.key.size(1) > tokens_) scores = indexer_.scores(input.x, cache.parts[0].key);
    return attend(rotary_(x.query, before), cache.key, cache.value, scores, cache.mask, false, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    const Projections::Projected x = changed_(w_.of(input.x), context);
    const bool learns = recording() && beta_ > 0;
    Tensor scores;
    if (learns || input.x.size(1) > tokens_) {
      const Tensor seen = input.x.detach();
      scores = indexer_.scores(seen, indexer_.keys(seen, 0));
      show(context, "index_scores", scores);
    }
    return attend(rotary_(x.query), rotary_(x.key), x.value, scores, input.mask, learns, context);
  }

 private:
  /// Scores [B, 1, N, M] are undefined where all keys are chosen and the indexer does not learn.
  Tensor attend(const Tensor& queries, Tensor keys, Tensor values, const Tensor& scores, const Tensor& mask,
                bool learns, Context& context) {
    const std::int64_t heads = config().heads, count = keys.size(1), length = queries.size(1);
    AttentionOptions options = kernel_options(mask, context);
    options.causal = config().causal;
    if (count > tokens_) {
      const Tensor numbers = cast(scores.detach(), statistics_type(scores.dtype()));
      const Tensor chosen = choose_blocks(
          where(visible(scores, mask), numbers, -std::numeric_limits<double>::infinity()), tokens_);
      if (length == 1 && !context.capture) {
        const Tensor places = reshape(chosen, {chosen.size(0), tokens_});
        keys = gather_rows(keys, places), values = gather_rows(values, places);
        options.key_mask = greater(places, -1);
      } else {
        const Tensor ones = Tensor::ones(chosen.shape(), DType::f32, chosen.device());
        options.mask = greater(scatter_add(ones, 3, chosen, count), 0);
      }
    }
    const Tensor query = split_heads(queries, heads), key = split_heads(keys, heads);
    show_weights(context, query, key, options);
    if (learns) learn(attention_weights(query.detach(), key.detach(), options), scores, options, context);
    return w_.output(merge_heads(attention(query, key, split_heads(values, heads), options)));
  }

  /// i32 [1 or B, 1, N, M]: the keys that can be chosen.
  Tensor visible(const Tensor& scores, const Tensor& mask) const {
    const std::int64_t length = scores.size(2), count = scores.size(3);
    const Tensor at = Tensor::arange(count, DType::i32, scores.device());
    Tensor seen = less_equal(at, unsqueeze(slice(at, 0, count - length, count), 1));
    seen = unsqueeze(unsqueeze(config().causal ? seen : greater(seen, -1), 0), 0);
    return mask.defined() ? seen * unsqueeze(unsqueeze(mask, 1), 1) : seen;
  }

  /// Adds L to the losses of the pass; weights [B, H, N, N].
  void learn(const Tensor& weights, const Tensor& scores, const AttentionOptions& options, Context& context) {
    const Tensor& mask = options.key_mask;
    const DType precise = statistics_type(scores.dtype());
    const Tensor seen = options.mask.defined() ? options.mask : visible(scores, mask);
    const Tensor p = mean(cast(weights, precise), 1, true), index = cast(scores, precise);
    const Tensor blind = equal(sum(seen, 3, true), 0);  // has p = 0
    const Tensor compared = where(logical_or(seen, blind), index, -std::numeric_limits<double>::infinity());
    const Tensor apart = log(maximum(p, 1e-30)) - (index - log_sum_exp(compared, 3, true));
    const Tensor by_query = sum(where(seen, p * apart, 0), {1, 3});  // [B, N]
    if (!mask.defined()) {
      context.losses.push_back({"indexer", beta_, mean(by_query)});
      return;
    }
    const Tensor real = cast(mask, precise);
    context.losses.push_back({"indexer", beta_, sum(by_query * real) / maximum(sum(real), 1)});
  }

  std::int64_t tokens_;  // k
  double beta_;
  Projections w_;
  ProjectionOptions changed_;
  Part<LightningIndexer> indexer_;
  Rotary rotary_;
};

}  // namespace

AttentionVariant deepseek_sparse_variant() {
  return {"deepseek_sparse",
          {.causal = true,
           .as_heads = true,
           .rotary = true,
           .reason = "its indexer compares tokens of one sequence"},
          make_layer<DeepSeekSparse>};
}

}  // namespace heed
