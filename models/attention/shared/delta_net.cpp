#include "heed/models/attention/shared/delta_net.h"

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {

DeltaNet::DeltaNet(const AttentionConfig& config)
    : RecurrentAttention(config),
      value_width_(config.options.take_integer("value_width", 1, 1, 64) * config.width),
      query_(*this, "query", config.width, config.width, config.bias, initialiser_),
      key_(*this, "key", config.width, config.width, config.bias, initialiser_),
      value_(*this, "value", config.width, value_width_, config.bias, initialiser_),
      strength_(*this, "strength", config.width, config.heads, config.bias, initialiser_),
      output_(*this, "output", value_width_, config.width, config.bias, initialiser_),
      scales_(config.options.take_bool("scale", false)),
      convolution_(*this, "convolution", config.options.take_integer("convolution", 4, 1, 64),
                   2 * config.width + value_width_, false, initialiser_) {
  add_parameter("norm", gains_, Initialiser::constant({value_width_ / config.heads}, 1));
}

/// The maps of X, masked so that padding has no effect.
struct DeltaNet::Parts {
  Tensor qkv;        // [B, N, 2 d + e d]
  Tensor strength;   // beta [B, N, H]
  Tensor log_alpha;  // [B, N, H or d]; undefined: 0
};

Tensor DeltaNet::recurred(const std::vector<Tensor>& maps, const Tensor& log_alpha, const Tensor& mask,
                          AttentionCache* cache, Context& context) const {
  const DType type = maps[0].dtype(), precise = statistics_type(type);
  Parts parts{without_padding(concat({maps[0], maps[1], maps[2]}, 2), mask),
              without_padding(sigmoid(cast(maps[3], precise)), mask),
              {}};
  if (log_alpha.defined()) {
    parts.log_alpha = without_padding(log_alpha, mask);
    show(context, "fading", [&] {
      const Tensor alpha = exp(parts.log_alpha);
      return alpha.size(2) == config().heads ? transpose(alpha, 1, 2) : split_heads(alpha, config().heads);
    });
  }
  parts.strength = drop_tokens(parts.strength, config().dropout, context);
  Tensor out = one_way(parts, cache);
  if (!config().causal) {
    const auto reversed = [](const Tensor& t) { return t.defined() ? flip(t, 1) : t; };
    const Parts back{reversed(parts.qkv), reversed(parts.strength), reversed(parts.log_alpha)};
    out = out + flip(one_way(back, nullptr), 2);
  }
  const Tensor normed = rms_norm(transpose(out, 1, 2), cast(gains_, precise));  // [B, N, H, e dh]
  return cast(reshape(normed, {normed.size(0), normed.size(1), value_width_}), type);
}

/// o [B, H, N, e dh] in one direction.
Tensor DeltaNet::one_way(const Parts& parts, AttentionCache* cache) const {
  const std::int64_t width = config().width, heads = config().heads, head_width = width / heads;
  const DType precise = statistics_type(parts.qkv.dtype());
  const Tensor qkv = silu(convolution_(parts.qkv, cache ? &cache->value : nullptr));
  const auto heads_of = [&](std::int64_t begin, std::int64_t end) {
    return cast(split_heads(contiguous(slice(qkv, 2, begin, end)), heads), precise);
  };
  const auto root_of_width = std::sqrt(static_cast<double>(head_width));
  const auto unit = [&](const Tensor& t, double length) {  // rms_norm keeps squares within range
    return rms_norm(t, {}, 1e-6 / (root_of_width * root_of_width)) * (length / root_of_width);
  };
  const Tensor key = unit(heads_of(width, 2 * width), 1),
               value = heads_of(2 * width, 2 * width + value_width_),
               strength = unsqueeze(transpose(parts.strength, 1, 2), 3);
  Tensor log_alpha = parts.log_alpha;
  if (log_alpha.defined())
    log_alpha = log_alpha.size(2) == heads ? transpose(log_alpha, 1, 2) : split_heads(log_alpha, heads);
  return recurrence_output({.query = unit(heads_of(0, width), scales_ ? 1 / root_of_width : 1),
                            .log_decay = log_alpha,
                            .reading = key * strength,
                            .writing = key,
                            .target = value * strength},
                           true, cache ? &cache->key : nullptr);
}

}  // namespace heed
