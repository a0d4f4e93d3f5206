#include "heed/models/attention/shared/projected_attention.h"

#include "heed/autograd/ops.h"
#include "heed/base/error.h"

namespace heed {
namespace {

/// The heads that rotary positions turn.
AttentionConfig split_between(AttentionConfig config, std::int64_t softmaxes) {
  if (softmaxes == 1) return config;
  const std::int64_t width = config.inner_width() / config.heads;
  check(width % 2 == 0, "the width of a head must be even, since two softmaxes share it, got ", width);
  config.width = config.inner_width();
  config.head_width = 0;
  config.heads *= 2;
  return config;
}

}  // namespace

ProjectedAttention::ProjectedAttention(const AttentionConfig& config, std::int64_t key_heads,
                                       std::int64_t softmaxes)
    : Attention(config),
      key_heads_(key_heads),
      w_(config, initialiser_, key_heads),
      rotary_(split_between(config, softmaxes)),
      distances_(config, initialiser_) {
  add_projections(w_);
  if (distances_.has_parameters()) add_module("relative", distances_);
}

Tensor ProjectedAttention::step(const AttentionInput& input, AttentionCache& cache, Context& context) {
  if (config().cross) {
    // The memory is the same at every step, so it is projected once.
    if (!cache.key.defined()) {
      const Projections::Projected memory = w_.of_memory(input.memory);
      cache.key = memory.key, cache.value = memory.value;
    }
    cache.of_memory = true;
    const Tensor x = by_memory(input);
    return reshape(attend(x, w_.query(x), cache.key, cache.value, input.memory_mask, context),
                   input.x.shape());
  }
  const std::int64_t before = cache.extend_mask(input);
  const Projections::Projected x = w_.of(input.x);
  cache.key = appended(std::move(cache.key), rotary_(x.key, before));
  cache.value = appended(std::move(cache.value), x.value);
  return attend(input.x, rotary_(x.query, before), cache.key, cache.value, cache.mask, context);
}

Tensor ProjectedAttention::forward(const AttentionInput& input, Context& context) {
  if (config().cross) {
    const Projections::Projected memory = w_.of_memory(input.memory);
    return attend(input.x, w_.query(input.x), memory.key, memory.value, input.memory_mask, context);
  }
  const Projections::Projected x = w_.of(input.x);
  return attend(input.x, rotary_(x.query), rotary_(x.key), x.value, input.mask, context);
}

}  // namespace heed
