// Attention Free Transformer: "An attention free Transformer", Zhai et al. 2021, arXiv 2105.14103,
// section 3. No query meets a key. Each feature is averaged over the positions, with weights from
// the keys and from learned biases w between positions. The query then gates the average:
//
//   Y_t = sigmoid(q_t) * sum_j e^(k_j + w_tj) * v_j / sum_j e^(k_j + w_tj)             (eq. 2)
//   simple: w = 0 (eq. 5)        full: w_tj = a_t . b_j, of rank r (section 3.1)
//   local:  w_tj = a_t . b_j where |t - j| < s, else 0 (eq. 3); all positions are still seen
//   q, k, v = X Wq, X Wk, X Wv,   O = Y Wo,   causal: over j <= t;   element by element
//
// The simple form takes time and memory N d. It decodes with a state of constant size: both sums,
// and the largest key so far, which scales them. The other forms take time N^2 d and memory N (N +
// d), causal N (N + d log N), and need a max_length L. In every form, keys are taken relative to
// the largest key that a position sees; this cancels.
//
// Departure: the paper has neither heads nor Wo; Wo is kept as in other layers. Padded positions
// enter no sum. Dropout drops tokens from the upper sum. Parameters: 4 d^2, plus 2 r L for the
// biases, which start from N(0, 0.1^2).
//
// Settings: "form" ("simple", "local" or "full"); for local and full "rank" r (128); for local
// "window" s (32).

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/sorting.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

constexpr double excluded = -1e30;  // the logarithm of a weight that is 0

/// Upper and lower sums "sums" [B, N, 2, d], to be multiplied by e^scale; scale [B, N, 1, d] has no
/// gradient.
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

/// Every `step`-th position along an axis.
ScaledSums part(const ScaledSums& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
  return {slice(x.sums, axis, begin, end, step), slice(x.scale, axis, begin, end, step)};
}

/// Over all positions up to each: up to every second one from the sums of pairs, and from these to
/// the others.
ScaledSums over_prefixes(const ScaledSums& each) {
  const std::int64_t length = each.sums.size(1), pairs = length / 2;
  if (length == 1) return each;
  const ScaledSums firsts = part(each, 1, 0, length, 2), seconds = part(each, 1, 1, length, 2);
  const ScaledSums up_to_seconds = over_prefixes(added(part(firsts, 1, 0, pairs), seconds));
  const std::int64_t others = length - pairs;
  if (others == 1)
    return {concat({firsts.sums, up_to_seconds.sums}, 1), concat({firsts.scale, up_to_seconds.scale}, 1)};
  const ScaledSums up_to_firsts = added(part(up_to_seconds, 1, 0, others - 1), part(firsts, 1, 1, others));
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

/// Over all positions of a block, with weights e^w for each of its queries: sums [B, P, m, 2, d]
/// and w [P, n, m] -> [B, P, n, 2, d], for P blocks.
ScaledSums over_block(const Tensor& w, const ScaledSums& each) {
  const std::int64_t batch = each.sums.size(0), blocks = each.sums.size(1), d = each.sums.size(4);
  const Tensor largest = max(each.scale, 2, true), largest_w = max(w, -1, true).detach();
  const Tensor columns =
      reshape(each.sums * exp(each.scale - largest), {batch, blocks, each.sums.size(2), 2 * d});
  const Tensor sums = matmul(exp(w - largest_w), columns);
  return {reshape(sums, {batch, blocks, w.size(1), 2, d}), unsqueeze(largest_w, 3) + largest};
}

/// The upper sum divided by the lower one, [B, N, d]; 0 where nothing is seen.
Tensor quotient(const Tensor& sums) {
  return select(sums, 2, 0) / divisor(select(sums, 2, 1));
}

class AttentionFree : public RecurrentAttention {
 public:
  explicit AttentionFree(const AttentionConfig& config)
      : RecurrentAttention(config),
        w_(config, initialiser_),
        form_(config.options.take_choice("form", {"simple", "local", "full"})) {
    add_projections(w_);
    if (form_ == "simple") return;
    const Shape shape{config.max_length, config.options.take_integer("rank", 128, 1, most_units)};
    add_parameter("of_queries", of_queries_, initialiser_.normal(shape, 0.1));
    add_parameter("of_keys", of_keys_, initialiser_.normal(shape, 0.1));
    if (form_ == "local") window_ = config.options.take_integer("window", 32, 1, most_positions);
  }

 protected:
  Tensor mixed(const AttentionInput& input, AttentionCache* cache, Context& context) override {
    const DType precise = statistics_type(input.x.dtype());
    const Projections::Projected x = w_.of(input.x);
    const Tensor key = cast(x.key, precise);
    const Tensor value = drop_tokens(cast(x.value, precise), config().dropout, context);
    const Tensor average =
        form_ == "simple" ? simple(key, value, input.mask, cache) : biased(input, key, value, cache, context);
    return w_.output(sigmoid(x.query) * cast(average, input.x.dtype()));
  }

 private:
  /// The cache holds the sums so far in `key` [B, 1, 2, d], and their scale in `value` [B, 1, 1,
  /// d].
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
      cache->extend_mask(input);
      keys = cache->key = appended(std::move(cache->key), key);
      values = cache->value = appended(std::move(cache->value), value);
      mask = cache->mask;
    }
    const std::int64_t length = keys.size(1), begin = length - queries;
    check_length(length);
    const auto parameters = [&](const Tensor& x, std::int64_t first) {
      return unsqueeze(cast(slice(x, 0, first, length), key.dtype()), 0);
    };
    const Tensor a = parameters(of_queries_, begin), b = parameters(of_keys_, 0);
    show(context, "position_biases", [&] { return squeeze(biases(a, b, -begin), 0); });
    const ScaledSums each = of_positions(keys, values, mask);
    return quotient((config().causal ? over_past(a, b, each) : over_keys(a, b, each)).sums);
  }

  /// w = a b^T for queries a [P, n, r] and keys b [P, m, r]; the first key is so far ahead of the
  /// first query.
  Tensor biases(const Tensor& a, const Tensor& b, std::int64_t ahead) const {
    const Tensor w = matmul(a, transpose(b, 1, 2));
    if (form_ != "local") return w;
    const auto places = [&](const Tensor& x) { return Tensor::arange(x.size(1), DType::i32, x.device()); };
    const Tensor distance = unsqueeze(places(b) + static_cast<double>(ahead), 0) - unsqueeze(places(a), 1);
    return where(less(abs(distance), static_cast<double>(window_)), w, 0);
  }

  /// Of queries a [1, n, r] over all keys b [1, m, r].
  ScaledSums over_keys(const Tensor& a, const Tensor& b, const ScaledSums& each,
                       std::int64_t ahead = 0) const {
    const ScaledSums all =
        over_block(biases(a, b, ahead), {unsqueeze(each.sums, 1), unsqueeze(each.scale, 1)});
    return {squeeze(all.sums, 1), squeeze(all.scale, 1)};
  }

  /// Of queries a [1, n, r], the last n of m positions, over all keys up to each. First over those
  /// before the queries and over its own; then, in blocks of 2, 4, 8, ... positions, the second
  /// half adds the first: so no key is scaled by one that comes later.
  ScaledSums over_past(const Tensor& a, const Tensor& b, const ScaledSums& each) const {
    const std::int64_t n = a.size(1), m = b.size(1), before = m - n;
    const ScaledSums recent = part(each, 1, before, m);
    const Tensor keys = slice(b, 1, before, m), own = reshape(sum(a * keys, -1), {1, n, 1, 1});
    ScaledSums all{recent.sums * exp(own - own.detach()), recent.scale + own.detach()};
    if (before > 0) all = added(over_keys(a, slice(b, 1, 0, before), part(each, 1, 0, before), -before), all);
    for (std::int64_t half = 1; half < n; half *= 2) {
      const auto halves = [&](const ScaledSums& x, std::int64_t which) {
        return part({into_blocks(x.sums, 2 * half), into_blocks(x.scale, 2 * half, excluded)}, 2,
                    which * half, (which + 1) * half);
      };
      const auto rows = [&](const Tensor& x, std::int64_t which) {
        return slice(squeeze(into_blocks(x, 2 * half), 0), 1, which * half, (which + 1) * half);
      };
      const ScaledSums of_first = over_block(biases(rows(a, 1), rows(keys, 0), -half), halves(recent, 0));
      const ScaledSums first = halves(all, 0), second = added(halves(all, 1), of_first);
      all = {from_blocks(concat({first.sums, second.sums}, 2), n),
             from_blocks(concat({first.scale, second.scale}, 2), n)};
    }
    return all;
  }

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
