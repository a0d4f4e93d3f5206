// Attention Free Transformer: "An attention free Transformer", Zhai et al. 2021, arXiv 2105.14103, section 3.
// No query meets a key. Every feature is averaged over the positions with weights of its own, made of the keys
// and of biases w that are learned for pairs of places, and then gated by the query:
//
//   Y_t = sigmoid(q_t) * sum_j e^(k_j + w_tj) * v_j / sum_j e^(k_j + w_tj)       element by element     (eq. 2)
//   simple: w = 0 (eq. 5)        full: w_tj = a_t . b_j, of rank r (section 3.1)
//   local:  w_tj = a_t . b_j where |t - j| < s, else 0 (eq. 3); all positions are still seen
//   q, k, v = X Wq, X Wk, X Wv,   O = Y Wo,   causal: over j <= t
//
// The simple form takes time and memory N d, and decodes with a state of constant size: both sums, and the
// largest key so far, by which they are scaled. The others take time N^2 d and memory N (N + d), and are built
// for a max_length L. There keys count relative to the largest of the sequence, which cancels.
//
// The paper has no heads, nor Wo, which is kept here, as in other layers. Padded positions enter no sum.
// Dropout drops tokens from the upper sum. Parameters 4 d^2, and 2 r L of the biases, which start from
// N(0, 0.1^2).
//
// Settings: "form" ("simple", "local" or "full"); of the last two "rank" r (128), of local "window" s (32).

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

constexpr double excluded = -1e30;  // the logarithm of a weight that is 0

/// Upper and lower sums "sums" [B, N, 2, d], to be multiplied by e^scale; scale [B, N, 1, d] has no gradient.
struct ScaledSums {
  Tensor sums, scale;
};

/// The sums over one position each: e^k v and e^k.
ScaledSums of_positions(const Tensor& key, const Tensor& value, const Tensor& mask) {
  const Tensor weight = exp(key - key.detach());  // 1, with the gradient of e^k
  Tensor sums = stack({weight * value, weight}, 2), scale = unsqueeze(key.detach(), 2);
  if (mask.defined()) {
    const Tensor real = unsqueeze(unsqueeze(mask, 2), 3);
    sums = where(real, sums, 0);
    scale = where(real, scale, excluded);
  }
  return {sums, scale};
}

ScaledSums over_all(const ScaledSums& each) {
  const Tensor largest = max(each.scale, 1, true);
  return {sum(each.sums * exp(each.scale - largest), 1, true), largest};
}

ScaledSums added(const ScaledSums& a, const ScaledSums& b) {
  const Tensor largest = maximum(a.scale, b.scale);
  return {a.sums * exp(a.scale - largest) + b.sums * exp(b.scale - largest), largest};
}

/// Over all positions up to each: up to every second one from the sums of pairs, and from these to the others.
ScaledSums over_prefixes(const ScaledSums& each) {
  const std::int64_t length = each.sums.size(1), pairs = length / 2;
  if (length == 1) return each;
  const auto part = [](const ScaledSums& x, std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
    return ScaledSums{slice(x.sums, 1, begin, end, step), slice(x.scale, 1, begin, end, step)};
  };
  const ScaledSums firsts = part(each, 0, length, 2), seconds = part(each, 1, length, 2);
  const ScaledSums up_to_seconds = over_prefixes(added(part(firsts, 0, pairs), seconds));
  const std::int64_t others = length - pairs;
  if (others == 1)
    return {concat({firsts.sums, up_to_seconds.sums}, 1), concat({firsts.scale, up_to_seconds.scale}, 1)};
  const ScaledSums up_to_firsts = added(part(up_to_seconds, 0, others - 1), part(firsts, 1, others));
  const auto in_turn = [&](const Tensor& first, const Tensor& firsts_after, const Tensor& seconds_sums) {
    Shape shape = seconds_sums.shape();
    shape[1] = 2 * (others - 1);
    const Tensor after = reshape(stack({slice(seconds_sums, 1, 0, others - 1), firsts_after}, 2), shape);
    if (pairs < others) return concat({first, after}, 1);
    return concat({first, after, slice(seconds_sums, 1, pairs - 1, pairs)}, 1);
  };
  return {in_turn(slice(firsts.sums, 1, 0, 1), up_to_firsts.sums, up_to_seconds.sums),
          in_turn(slice(firsts.scale, 1, 0, 1), up_to_firsts.scale, up_to_seconds.scale)};
}

/// The upper sum divided by the lower one, [B, N, d]; 0 where nothing is seen.
Tensor quotient(const Tensor& sums) {
  return select(sums, 2, 0) / maximum(select(sums, 2, 1), 1e-30);
}

class AttentionFree : public Attention {
 public:
  explicit AttentionFree(const AttentionConfig& config)
      : Attention(config),
        initialiser_(config.seed),
        w_(config, initialiser_),
        form_(config.options.take_choice("form", {"simple", "local", "full"})) {
    add_projections(w_);
    if (form_ == "simple") return;
    const Shape shape{config.max_length, config.options.take_integer("rank", 128, 1, most_units)};
    add_parameter("of_queries", of_queries_, initialiser_.normal(shape, 0.1));
    add_parameter("of_keys", of_keys_, initialiser_.normal(shape, 0.1));
    if (form_ == "local") window_ = config.options.take_integer("window", 32, 1, most_positions);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    return config().causal ? mixed(input, &cache, context) : Attention::step(input, cache, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    return mixed(input, nullptr, context);
  }

 private:
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) const {
    const DType precise = statistics_type(input.x.dtype());
    const Projections::Projected x = w_.of(input.x);
    const Tensor key = cast(x.key, precise);
    const Tensor value =
        squeeze(drop_tokens(unsqueeze(cast(x.value, precise), 1), config().dropout, context), 1);
    const Tensor average =
        form_ == "simple" ? simple(key, value, input.mask, cache) : biased(input, key, value, cache, context);
    return w_.output(sigmoid(x.query) * cast(average, input.x.dtype()));
  }

  /// The cache holds the sums so far in `key` [B, 1, 2, d], and their scale in `value` [B, 1, 1, d].
  Tensor simple(const Tensor& key, const Tensor& value, const Tensor& mask, AttentionCache* cache) const {
    ScaledSums each = of_positions(key, value, mask);
    if (!config().causal) return quotient(over_all(each).sums);
    const bool continues = cache && cache->key.defined();
    if (continues) each = {concat({cache->key, each.sums}, 1), concat({cache->value, each.scale}, 1)};
    each = over_prefixes(each);
    const std::int64_t last = each.sums.size(1) - 1;
    if (cache) {
      cache->key = slice(each.sums, 1, last, last + 1);
      cache->value = slice(each.scale, 1, last, last + 1);
    }
    return quotient(slice(each.sums, 1, continues ? 1 : 0, last + 1));
  }

  /// The cache holds all keys and values, [B, T, d].
  Tensor biased(const AttentionInput& input, const Tensor& key, const Tensor& value, AttentionCache* cache,
                Context& context) const {
    const std::int64_t queries = key.size(1);
    Tensor keys = key, values = value, mask = input.mask;
    if (cache) {
      cache->extend_mask(input, cache->key.defined() ? cache->key.size(1) : 0);
      keys = cache->key = appended(std::move(cache->key), key);
      values = cache->value = appended(std::move(cache->value), value);
      mask = cache->mask;
    }
    const std::int64_t length = keys.size(1), begin = length - queries;
    check(length <= config().max_length, "attention 'attention_free_transformer' was built for at most ",
          config().max_length, " positions (max_length), got ", length);
    const ScaledSums each = of_positions(keys, values, mask);
    const Tensor columns = reshape(each.sums * exp(each.scale - max(each.scale, 1, true)),
                                   {keys.size(0), length, 2 * keys.size(2)});
    const Tensor sums = matmul(weights(begin, length, key, context), columns);  // [B, queries, 2 d]
    return quotient(reshape(sums, {keys.size(0), queries, 2, keys.size(2)}));
  }

  /// e^w of queries from `begin` on, each row divided by its largest: [queries, length].
  Tensor weights(std::int64_t begin, std::int64_t length, const Tensor& like, Context& context) const {
    Tensor w = matmul(cast(slice(of_queries_, 0, begin, length), like.dtype()),
                      cast(transpose(slice(of_keys_, 0, 0, length), 0, 1), like.dtype()));
    const Tensor at = Tensor::arange(length, DType::i32, like.device());
    const Tensor ahead = unsqueeze(at, 0) - unsqueeze(slice(at, 0, begin, length), 1);  // j - t
    if (form_ == "local") w = where(less(abs(ahead), static_cast<double>(window_)), w, 0);
    show(context, "position_biases", w);
    if (config().causal) w = where(less_equal(ahead, 0), w, excluded);
    return exp(w - max(w, 1, true).detach());
  }

  Initialiser initialiser_;
  Projections w_;
  std::string form_;
  std::int64_t window_ = 0;      // of the local form
  Tensor of_queries_, of_keys_;  // a and b [L, r]; undefined in the simple form
};

}  // namespace

AttentionVariant attention_free_transformer_variant() {
  const Capabilities can{.causal = true, .reason = "it averages over the positions of one sequence"};
  return {"attention_free_transformer", can, make_layer<AttentionFree>, [can](const Options& options) {
            Capabilities with = can;
            with.any_length = options.take_choice("form", {"simple", "local", "full"}) == "simple";
            return with;
          }};
}

}  // namespace heed
