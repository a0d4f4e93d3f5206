#include "heed/models/attention/shared/delta_net.h"

#include <cmath>

#include "heed/autograd/ops.h"
#include "heed/models/attention/shared/token_sums.h"

namespace heed {

DeltaNet::DeltaNet(const AttentionConfig& config, const DeltaRule& rule)
    : RecurrentAttention(config),
      rule_(rule),
      value_width_(config.options.take_integer("value_width", 1, 1, 64) * config.width),
      query_(*this, "query", config.width, config.width, config.bias, initialiser_),
      key_(*this, "key", config.width, rule.steps * config.width, config.bias, initialiser_),
      value_(*this, "value", config.width, rule.steps * value_width_, config.bias, initialiser_),
      strength_(*this, "strength", config.width,
                rule.by_feature ? config.width + value_width_ : rule.steps * config.heads, config.bias,
                initialiser_),
      output_(*this, "output", value_width_, config.width, config.bias, initialiser_),
      scales_(config.options.take_bool("scale", false)),
      convolution_(*this, "convolution", config.options.take_integer("convolution", 4, 1, 64),
                   config.width + rule.steps * (config.width + value_width_), false, initialiser_) {
  add_parameter("norm", gains_, Initialiser::constant({value_width_ / config.heads}, 1));
  if (!rule.controlled) return;
  add_parameter("factor", factor_, Initialiser::constant({config.heads}, 1));
  add_parameter(
      "correction", correction_,
      Initialiser::constant({config.heads}, config.options.take_number("correction", 0.02, -1e6, 1e6)));
}

/// The maps of X, masked so that padding has no effect, for n rules per token.
struct DeltaNet::Parts {
  Tensor qkv;        // [B, N, d + n (d + e d)]
  Tensor strength;   // beta [B, N, n H], or by feature [B, N, d + e d]
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

/// o [B, H, N, e dh] in one direction. n rules per token are n tokens of the recurrence: the first
/// fades, and the query reads after the last.
Tensor DeltaNet::one_way(const Parts& parts, AttentionCache* cache) const {
  const std::int64_t width = config().width, heads = config().heads, head_width = width / heads,
                     steps = rule_.steps, batch = parts.qkv.size(0), length = steps * parts.qkv.size(1);
  const DType precise = statistics_type(parts.qkv.dtype());
  const Tensor qkv = silu(convolution_(parts.qkv, cache ? &cache->value : nullptr));
  const auto heads_of = [&](std::int64_t begin, std::int64_t end) {
    return cast(split_heads(contiguous(slice(qkv, 2, begin, end)), heads), precise);
  };
  const auto by_rule = [&](std::int64_t begin, std::int64_t end) {
    const Tensor rows =
        reshape(contiguous(slice(qkv, 2, begin, end)), {batch, length, (end - begin) / steps});
    return cast(split_heads(rows, heads), precise);
  };
  const auto root_of_width = std::sqrt(static_cast<double>(head_width));
  const auto unit = [&](const Tensor& t, double size) {  // rms_norm keeps squares within range
    return rms_norm(t, {}, 1e-6 / (root_of_width * root_of_width)) * (size / root_of_width);
  };
  const std::int64_t values = (1 + steps) * width;
  const Tensor key = unit(by_rule(width, values), 1), value = by_rule(values, values + steps * value_width_);
  const double most = rule_.reflects ? 2 : 1;
  Tensor erased, written;  // rates
  if (rule_.by_feature) {
    erased = split_heads(slice(parts.strength, 2, 0, width), heads) * most;
    written = split_heads(slice(parts.strength, 2, width, width + value_width_), heads);
  } else {
    written = unsqueeze(transpose(reshape(parts.strength, {batch, length, heads}), 1, 2), 3) * most;
    erased = written;
  }
  Tensor query = unit(heads_of(0, width), scales_ ? 1 / root_of_width : 1), log_alpha = parts.log_alpha;
  if (log_alpha.defined())
    log_alpha = log_alpha.size(2) == heads ? transpose(log_alpha, 1, 2) : split_heads(log_alpha, heads);
  if (rule_.controlled) {
    const auto of_heads = [&](const Tensor& t) { return reshape(cast(t, precise), {heads, 1, 1}); };
    erased = erased * of_heads(sigmoid(factor_));
    query = query - key * of_heads(correction_);
  }
  if (steps > 1) {
    query = repeat(query, steps, 2);
    if (log_alpha.defined())
      log_alpha = reshape(pad(unsqueeze(log_alpha, 3), 3, 0, steps - 1), {batch, heads, length});
  }
  const Tensor out = recurrence_output({.query = query,
                                        .log_decay = log_alpha,
                                        .reading = key * erased,
                                        .writing = key,
                                        .target = value * written},
                                       true, cache ? &cache->key : nullptr);
  return steps > 1 ? slice(out, 2, steps - 1, length, steps) : out;
}

GatedDelta::GatedDelta(const AttentionConfig& config, const DeltaRule& rule) : DeltaNet(config, rule) {
  if (!config.options.take_bool("gated", true)) return;
  decay_ = std::make_unique<Part<Linear>>(*this, "decay", config.width, config.heads, false, initialiser_);
  gate_ =
      std::make_unique<Part<Linear>>(*this, "gate", config.width, value_width_, config.bias, initialiser_);
  add_parameter("decay_rate", rate_, first_decay_rates(config.heads, initialiser_));
  add_parameter("decay_step", step_, first_decay_steps(config.heads, initialiser_));
}

Tensor GatedDelta::mixed(const AttentionInput& input, AttentionCache* cache, Context& context) {
  if (!decay_)
    return output_(recurred(Linear::each({&query_, &key_, &value_, &strength_}, input.x), {}, input.mask,
                            cache, context));
  const std::vector<Tensor> x =
      Linear::each({&query_, &key_, &value_, &strength_, decay_.get(), gate_.get()}, input.x);
  const DType precise = statistics_type(input.x.dtype());
  const Tensor log_alpha = softplus(cast(x[4], precise) + cast(step_, precise)) * -exp(cast(rate_, precise));
  const Tensor out = recurred(x, log_alpha, input.mask, cache, context);
  return output_(rule_.controlled ? sigmoid(x[5]) * out : swiglu(x[5], out));
}

}  // namespace heed
