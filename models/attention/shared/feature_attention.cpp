#include "heed/models/attention/shared/feature_attention.h"

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {
namespace {

constexpr double never = -1e30;     // the log scale of padding
constexpr double most_decay = 100;  // e^-100 is nothing beside 1

Tensor real_scale(const Tensor& log_scale, const Tensor& mask) {
  return mask.defined() ? where(unsqueeze(mask, 1), log_scale, never) : log_scale;
}

}  // namespace

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
  const Tensor query =
      phi(heads_of(config().cross ? w_.query(input.x) : x.query), {0, input.x.size(1)}).values;
  if (context.capture) show_weights_of(context, query, phi(heads_of(x.key), {0, x.key.size(1)}), mask);
  return output(matmul(query, sums_of(phi, x, mask, context)), input.x);
}

Tensor FeatureAttention::step(const AttentionInput& input, AttentionCache& cache, Context& context) {
  if (config().causal) return causal(input, cache, context);
  if (!config().cross) return Attention::step(input, cache, context);
  const FeatureMap phi = feature_map(context);
  if (!cache.key.defined()) cache.key = sums_of(phi, w_.of_memory(input.memory), input.memory_mask, context);
  cache.of_memory = true;
  const Tensor x = by_memory(input);
  const Places places{cache.position, input.x.size(1)};
  cache.position += places.count;
  return reshape(output(matmul(phi(heads_of(w_.query(x)), places).values, cache.key), x), input.x.shape());
}

/// The cache holds S and z in `key` [B, H, m, dh + 1], and in `value` [B, H, 1] the log scale that
/// both are divided by, the largest so far.
Tensor FeatureAttention::causal(const AttentionInput& input, AttentionCache& cache, Context& context) {
  const FeatureMap phi = feature_map(context);
  const Projections::Projected x = w_.of(input.x);
  const Places places{cache.position, input.x.size(1)};
  cache.position += places.count;
  const Tensor query = phi(heads_of(x.query), places).values;
  const Features keys = phi(heads_of(x.key), places);
  if (context.capture) show_weights_of(context, query, keys, input.mask);
  Tensor key = keys.values, log_decay;
  if (keys.log_scale.defined()) {
    const Tensor scale = real_scale(keys.log_scale, input.mask);
    Tensor largest = running_max(scale.detach());
    if (cache.value.defined()) largest = maximum(largest, cache.value);
    const Tensor first = cache.value.defined() ? cache.value : slice(largest, 2, 0, 1);
    const Tensor before = concat({first, slice(largest, 2, 0, largest.size(2) - 1)}, 2);
    log_decay = clamp(before - largest, -most_decay, 0);
    key = key * exp(unsqueeze(scale - largest, 3));
    cache.value = slice(largest, 2, largest.size(2) - 1, largest.size(2));
  }
  const Tensor sums = recurrence_output({.query = query,
                                         .key = without_padding(key, input.mask),
                                         .value = values_of(x.value, context),
                                         .log_decay = log_decay},
                                        true, &cache.key);
  return output(sums, input.x);
}

Tensor FeatureAttention::heads_of(const Tensor& x) const {
  return cast(split_heads(x, config().heads), statistics_type(x.dtype()));
}

/// Values [B, H, N, dh + 1], whose last column of ones makes z the last column of S.
Tensor FeatureAttention::values_of(const Tensor& value, Context& context) const {
  const Tensor v = heads_of(value);
  const Tensor ones = Tensor::ones({v.size(0), v.size(1), v.size(2), 1}, v.dtype(), v.device());
  return concat({drop_tokens(v, config().dropout, context), ones}, 3);
}

/// phi(k) divided by the largest scale of a real key, with zeros at padding.
Tensor FeatureAttention::keys_of(const Features& features, const Tensor& mask) {
  if (!features.log_scale.defined()) return without_padding(features.values, mask);
  const Tensor scale = real_scale(features.log_scale, mask);
  return without_padding(features.values * exp(unsqueeze(scale - max(scale, -1, true).detach(), 3)), mask);
}

/// S and z over all keys, [B, H, m, dh + 1].
Tensor FeatureAttention::sums_of(const FeatureMap& phi, const Projections::Projected& memory,
                                 const Tensor& mask, Context& context) const {
  const Tensor key = keys_of(phi(heads_of(memory.key), {0, memory.key.size(1)}), mask);
  return matmul(transpose(key, 2, 3), values_of(memory.value, context));
}

/// O from phi(q) S and, as the last column, phi(q) z.
Tensor FeatureAttention::output(const Tensor& sums, const Tensor& like) const {
  const std::int64_t width = sums.size(3) - 1;
  const Tensor total = divisor(slice(sums, 3, width, width + 1));
  return w_.output(merge_heads(cast(slice(sums, 3, 0, width) / total, like.dtype())));
}

/// Records "weights" [B, H, N, M] of the keys of this pass.
void FeatureAttention::show_weights_of(Context& context, const Tensor& query, const Features& keys,
                                       const Tensor& mask) const {
  Tensor weights = matmul(query, transpose(keys_of(keys, mask), 2, 3));
  if (config().causal) weights = tril(weights);
  show(context, "weights", weights / divisor(sum(weights, -1, true)));
}

}  // namespace heed
