#include "heed/models/attention/shared/feature_attention.h"

#include <limits>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {

constexpr double most_decay = 100;  // exp(-100) is below the precision of 1

/// Less than the logarithm of any feature.
static double least_log(const Tensor& logs) {
  return logs.dtype() == DType::f64 ? -1e300 : -1e38;
}

FeatureAttention::FeatureAttention(const AttentionConfig& config)
    : Attention(config), w_(config, initialiser_) {
  add_projections(w_);
}

Tensor FeatureAttention::forward(const AttentionInput& input, Context& context) {
  if (config().causal) {
    AttentionCache none;
    return causal(input, none, context);
  }
  const FeatureMap phi = feature_map(context);
  const Projections::Projected x = config().cross ? w_.of_memory(input.memory) : w_.of(input.x);
  const Tensor& mask = config().cross ? input.memory_mask : input.mask;
  const Features query = phi(heads_of(config().cross ? w_.query(input.x) : x.query), {0, input.x.size(1)});
  const Keys keys = key_features(phi(heads_of(x.key), {0, x.key.size(1)}), mask);
  if (context.capture) show_feature_weights(context, query, keys);
  return output(matmul(feature_values(query, keys.scale), feature_sums(keys, x.value, context)), input.x);
}

Tensor FeatureAttention::step(const AttentionInput& input, AttentionCache& cache, Context& context) {
  if (config().causal) return causal(input, cache, context);
  if (!config().cross) return Attention::step(input, cache, context);
  const FeatureMap phi = feature_map(context);
  if (!cache.key.defined()) {
    const Projections::Projected memory = w_.of_memory(input.memory);
    const Keys keys = key_features(phi(heads_of(memory.key), {0, memory.key.size(1)}), input.memory_mask);
    cache.key = feature_sums(keys, memory.value, context), cache.value = keys.scale;
  }
  cache.of_memory = true;
  const Tensor x = by_memory(input);
  const Places places{cache.position, input.x.size(1)};
  cache.position += places.count;
  const Tensor query = feature_values(phi(heads_of(w_.query(x)), places), cache.value);
  return reshape(output(matmul(query, cache.key), x), input.x.shape());
}

/// The cache holds S and z in `key` [B, H, m, dh + 1], divided by e^c with the last c in `value`
/// [B, H, 1, m].
Tensor FeatureAttention::causal(const AttentionInput& input, AttentionCache& cache, Context& context) {
  const FeatureMap phi = feature_map(context);
  const Projections::Projected x = w_.of(input.x);
  const Places places{cache.position, input.x.size(1)};
  cache.position += places.count;
  const Features query = phi(heads_of(x.query), places), key = phi(heads_of(x.key), places);
  if (context.capture) show_feature_weights(context, query, key_features(key, input.mask));
  const Tensor logs = logs_of_keys(key, input.mask);
  Tensor scale = maximum(running_max(logs, 2), least_log(logs));
  if (cache.value.defined()) scale = maximum(scale, cache.value);
  const Tensor first = cache.value.defined() ? cache.value : slice(scale, 2, 0, 1);
  const Tensor before = concat({first, slice(scale, 2, 0, places.count - 1)}, 2);
  cache.value = slice(scale, 2, places.count - 1, places.count);
  const Tensor sums = recurrence_output({.query = feature_values(query, scale),
                                         .key = exp(logs - scale),
                                         .value = with_ones(x.value, context),
                                         .log_decay = clamp(before - scale, -most_decay, 0)},
                                        true, &cache.key);
  return output(sums, input.x);
}

Tensor FeatureAttention::heads_of(const Tensor& x) const {
  return cast(split_heads(x, config().heads), statistics_type(x.dtype()));
}

/// Values [B, H, N, dh + 1], whose last column of ones makes z the last column of S.
Tensor FeatureAttention::with_ones(const Tensor& value, Context& context) const {
  const Tensor v = heads_of(value);
  const Tensor ones = Tensor::ones({v.size(0), v.size(1), v.size(2), 1}, v.dtype(), v.device());
  return concat({drop_tokens(v, config().dropout, context), ones}, 3);
}

/// log phi(k), -infinity at padding.
Tensor FeatureAttention::logs_of_keys(const Features& features, const Tensor& mask) {
  const Tensor logs = features.log_scale.defined() ? features.logs + features.log_scale : features.logs;
  const double never = -std::numeric_limits<double>::infinity();
  return mask.defined() ? where(unsqueeze(unsqueeze(mask, 1), 3), logs, never) : logs;
}

FeatureAttention::Keys FeatureAttention::key_features(const Features& features, const Tensor& mask) {
  const Tensor logs = logs_of_keys(features, mask);
  const Tensor scale = maximum(max(logs.detach(), 2, true), least_log(logs));
  return {exp(logs - scale), scale};
}

/// phi(q) e^c, divided by its largest element.
Tensor FeatureAttention::feature_values(const Features& query, const Tensor& scale) {
  const Tensor logs = query.logs + scale;
  return exp(logs - maximum(max(logs.detach(), -1, true), 2 * least_log(logs)));
}

/// S and z over all keys, divided by e^c, [B, H, m, dh + 1].
Tensor FeatureAttention::feature_sums(const Keys& keys, const Tensor& value, Context& context) const {
  return matmul(transpose(keys.values, 2, 3), with_ones(value, context));
}

/// O from phi(q) S and, as the last column, phi(q) z.
Tensor FeatureAttention::output(const Tensor& sums, const Tensor& like) const {
  const std::int64_t width = sums.size(3) - 1;
  const Tensor total = divisor(slice(sums, 3, width, width + 1));
  return w_.output(merge_heads(cast(slice(sums, 3, 0, width) / total, like.dtype())));
}

/// Records "weights" [B, H, N, M] of the keys of this pass.
void FeatureAttention::show_feature_weights(Context& context, const Features& query, const Keys& keys) const {
  Tensor weights = matmul(feature_values(query, keys.scale), transpose(keys.values, 2, 3));
  if (config().causal) weights = tril(weights);
  show(context, "weights", weights / divisor(sum(weights, -1, true)));
}

}  // namespace heed
