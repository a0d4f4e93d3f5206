#include "heed/models/attention/shared/projected_attention.h"

#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {

/// The heads that rotary positions rotate.
static AttentionConfig split_between(AttentionConfig config, std::int64_t softmaxes) {
  if (softmaxes == 1) return config;
  const std::int64_t width = config.inner_width() / config.heads;
  check(width % 2 == 0, "the width of a head must be even, since two softmaxes share it, got ", width);
  config.width = config.inner_width();
  config.head_width = 0;
  config.heads *= 2;
  return config;
}

/// Queries or keys [B, N, H dh] with each head normalised; unchanged without a norm.
static Tensor normed(const std::unique_ptr<Norm>& norm, const Tensor& x) {
  if (!norm) return x;
  const std::int64_t width = norm->weight.size(0);
  return reshape((*norm)(reshape(x, {x.size(0), x.size(1), x.size(2) / width, width})), x.shape());
}

ProjectedAttention::ProjectedAttention(const AttentionConfig& config, const Kind& kind)
    : Attention(config),
      key_heads_(kind.key_heads > 0 ? kind.key_heads : config.heads),
      window_(kind.window),
      w_(config, initialiser_, key_heads_, kind.output_bias),
      rotary_(split_between(config, kind.softmaxes)),
      distances_(config, initialiser_) {
  add_projections(w_);
  if (kind.normalised)
    for (auto& [norm, name] : {std::pair(&query_norm_, "query_norm"), {&key_norm_, "key_norm"}}) {
      *norm = std::make_unique<Norm>(NormKind::rms, config.inner_width() / config.heads, config.epsilon);
      add_module(name, **norm);
    }
  if (distances_.has_parameters()) add_module("relative", distances_);
}

Tensor ProjectedAttention::step(const AttentionInput& input, AttentionCache& cache, Context& context) {
  if (config().cross) {
    // The memory is the same at every step, so it is projected once.
    if (!cache.key.defined()) {
      const Projections::Projected memory = w_.of_memory(input.memory);
      cache.key = normed(key_norm_, memory.key), cache.value = memory.value;
    }
    cache.of_memory = true;
    const Tensor x = by_memory(input);
    const Tensor queries = normed(query_norm_, w_.query(x));
    return reshape(attend(x, queries, cache.key, cache.value, input.memory_mask, context), input.x.shape());
  }
  cache.extend_mask(input);
  const std::int64_t before = cache.position;
  const Projections::Projected x = w_.of(input.x);
  cache.key = appended(std::move(cache.key), rotary_(normed(key_norm_, x.key), before));
  cache.value = appended(std::move(cache.value), x.value);
  Tensor out = attend(input.x, rotary_(normed(query_norm_, x.query), before), cache.key, cache.value,
                      cache.mask, context);
  cache.position += input.x.size(1);
  const std::int64_t held = cache.key.size(1), begin = held - window_ + 1;
  if (window_ > 0 && config().causal && begin > 0)
    for (Tensor* kept : {&cache.key, &cache.value, &cache.mask})
      if (kept->defined()) *kept = slice(*kept, 1, begin, held);
  return out;
}

Tensor ProjectedAttention::forward(const AttentionInput& input, Context& context) {
  if (config().cross) {
    const Projections::Projected memory = w_.of_memory(input.memory);
    return attend(input.x, normed(query_norm_, w_.query(input.x)), normed(key_norm_, memory.key),
                  memory.value, input.memory_mask, context);
  }
  const Projections::Projected x = w_.of(input.x);
  return attend(input.x, rotary_(normed(query_norm_, x.query)), rotary_(normed(key_norm_, x.key)), x.value,
                input.mask, context);
}

}  // namespace heed
