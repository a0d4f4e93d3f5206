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

ProjectedAttention::ProjectedAttention(const AttentionConfig& config, const Kind& kind)
    : Attention(config),
      key_heads_(kind.key_heads > 0 ? kind.key_heads : config.heads),
      window_(kind.window),
      w_(config, initialiser_, key_heads_, kind.output_bias),
      rotary_(split_between(config, kind.softmaxes)),
      distances_(config, initialiser_) {
  add_projections(w_);
  changed_ = ProjectionOptions(*this, kind.options);
  if (distances_.has_parameters()) add_module("relative", distances_);
}

Tensor ProjectedAttention::step(const AttentionInput& input, AttentionCache& cache, Context& context) {
  if (config().cross) {
    // The memory is the same at every step, so it is projected once.
    if (!cache.key.defined()) {
      const Projections::Projected memory = changed_(w_.of_memory(input.memory), context);
      cache.key = memory.key, cache.value = memory.value;
    }
    cache.of_memory = true;
    const Tensor x = by_memory(input);
    const Projections::Projected asked = changed_({w_.query(x), {}, {}}, context);
    return reshape(attend(x, asked.query, cache.key, cache.value, input.memory_mask, context),
                   input.x.shape());
  }
  cache.extend_mask(input);
  const std::int64_t before = cache.position;
  const Projections::Projected x = changed_(w_.of(input.x), context);
  cache.key = appended(std::move(cache.key), rotary_(x.key, before));
  cache.value = appended(std::move(cache.value), x.value);
  Tensor out = attend(input.x, rotary_(x.query, before), cache.key, cache.value, cache.mask, context);
  cache.position += input.x.size(1);
  const std::int64_t held = cache.key.size(1), begin = held - window_ + 1;
  if (window_ > 0 && config().causal && begin > 0)
    for (Tensor* kept : {&cache.key, &cache.value, &cache.mask})
      if (kept->defined()) *kept = slice(*kept, 1, begin, held);
  return out;
}

Tensor ProjectedAttention::forward(const AttentionInput& input, Context& context) {
  if (config().cross) {
    Projections::Projected x = w_.of_memory(input.memory);
    x.query = w_.query(input.x);
    x = changed_(std::move(x), context);
    return attend(input.x, x.query, x.key, x.value, input.memory_mask, context);
  }
  const Projections::Projected x = changed_(w_.of(input.x), context);
  return attend(input.x, rotary_(x.query), rotary_(x.key), x.value, input.mask, context);
}

}  // namespace heed
