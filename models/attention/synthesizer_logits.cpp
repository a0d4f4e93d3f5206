#include "heed/models/attention/synthesizer_logits.h"

#include <string>

#include "heed/autograd/ops.h"
#include "heed/models/attention/heads.h"

namespace heed {
namespace {

/// i32 [queries, keys]: key j is allowed for the query at first + i when j <= first + i.
Tensor causal_mask(std::int64_t first, std::int64_t queries, std::int64_t keys, Device device) {
  const Tensor row = Tensor::arange(queries, DType::i32, device).view({queries, 1});
  return less_equal(Tensor::arange(keys, DType::i32, device).view({1, keys}), row + first);
}

//   Y_h = softmax( S_h(X) ) v_h over the allowed keys,  v = split(X Wv)    (eq. 2)
//   O   = merge(Y) Wo
// There is no 1 / sqrt(dh) on synthetic logits.
class Synthesizer : public Attention {
 public:
  Synthesizer(std::string_view name, const AttentionConfig& config,
              LogitsPtr (*make)(const AttentionConfig&, Initialiser&))
      : Attention(config),
        name_(name),
        initialiser_(config.seed),
        value_(config.width, config.inner_width(), config.bias, initialiser_),
        output_(config.inner_width(), config.width, config.bias, initialiser_),
        logits_(make(config, initialiser_)) {
    add_module("value", value_);
    add_module("output", output_);
    add_module("logits", *logits_);
  }

  Tensor step(const AttentionInput& input, AttentionCache& cache, Context& context) override {
    const std::int64_t before = cache.key.defined() ? cache.key.size(1) : 0;
    cache.extend_mask(input, before);
    cache.key = appended(std::move(cache.key), input.x);  // dot-product logits look at all inputs
    cache.value = appended(std::move(cache.value), value_(input.x));
    return attend(cache.key, cache.value, cache.mask, before, context);
  }

 protected:
  Tensor forward(const AttentionInput& input, Context& context) override {
    return attend(input.x, value_(input.x), input.mask, 0, context);
  }

 private:
  /// O [B, N - first, d] for the positions from `first` on; x and value [B, N, d].
  Tensor attend(const Tensor& x, const Tensor& value, const Tensor& mask, std::int64_t first,
                Context& context) const {
    check(x.size(1) <= config().max_length, "attention '", name_, "' was built for at most ",
          config().max_length, " positions (max_length), got ", x.size(1));
    if (logits_->is_product()) {
      const Tensor by_head = split_heads(value, config().heads);
      return output_(merge_heads(fused(logits_->factors(x, first), by_head, mask, context)));
    }
    const Tensor weights = masked_weights(logits_->logits(x, first), mask, first, x.size(0), context);
    return output_(weights.size(0) == 1 ? shared_product(weights, value)
                                        : merge_heads(matmul(weights, split_heads(value, config().heads))));
  }

  /// The fused kernel makes S = rows columns^T tile by tile, so that it needs no N x N matrix.
  Tensor fused(const LogitFactors& factors, const Tensor& value, const Tensor& mask, Context& context) const {
    AttentionOptions options = kernel_options(mask, context);
    options.scale = 1;
    options.causal = config().causal;
    const auto for_all = [&](const Tensor& x) {
      return expand(contiguous(x), {value.size(0), value.size(1), x.size(2), x.size(3)});
    };
    const Tensor rows = for_all(factors.rows), columns = for_all(factors.columns);
    show_weights(context, rows, columns, options);
    return attention(rows, columns, value, options);
  }

  /// softmax(S) over the allowed keys, with dropout. One matrix serves the whole batch, unless the samples
  /// are padded differently or drop different weights.
  Tensor masked_weights(Tensor s, const Tensor& mask, std::int64_t first, std::int64_t batch,
                        Context& context) const {
    Tensor allowed;
    if (config().causal) allowed = causal_mask(first, s.size(2), s.size(3), s.device());
    if (mask.defined()) {
      const Tensor keys = unsqueeze(unsqueeze(mask, 1), 1);  // [B, 1, 1, N]
      allowed = allowed.defined() ? allowed * keys : keys;
    }
    const bool drops = context.training && config().dropout > 0;
    const Shape one_each{batch, s.size(1), s.size(2), s.size(3)};
    if (mask.defined()) s = expand(s, one_each);
    const Tensor weights = allowed.defined() ? masked_softmax(s, allowed) : softmax(s);
    show(context, "weights", weights);
    return drops ? maybe_dropout(expand(weights, one_each), config().dropout, context) : weights;
  }

  /// A [1, H, n, N] times the values of all samples side by side, [B, N, d] -> [B, n, d].
  Tensor shared_product(const Tensor& a, const Tensor& value) const {
    const std::int64_t batch = value.size(0), length = value.size(1), heads = config().heads;
    const std::int64_t dh = config().inner_width() / heads, queries = a.size(2);
    const Tensor by_head = permute(reshape(value, {batch, length, heads, dh}), {2, 1, 0, 3});
    const Tensor product = matmul(squeeze(a, 0), reshape(by_head, {heads, length, batch * dh}));
    const Tensor samples = permute(reshape(product, {heads, queries, batch, dh}), {2, 1, 0, 3});
    return reshape(samples, {batch, queries, config().inner_width()});
  }

  std::string name_;
  Initialiser initialiser_;
  Linear value_, output_;
  LogitsPtr logits_;
};

}  // namespace

Tensor SynthesizerLogits::logits(const Tensor& x, std::int64_t first) const {
  const LogitFactors s = factors(x, first);
  return matmul(s.rows, transpose(s.columns, -2, -1));
}

LogitFactors SynthesizerLogits::factors(const Tensor&, std::int64_t) const {
  fail("these logits of the Synthesizer are no product");
}

std::unique_ptr<Attention> make_synthesizer(std::string_view name, const AttentionConfig& config,
                                            LogitsPtr (*make)(const AttentionConfig&, Initialiser&)) {
  return std::make_unique<Synthesizer>(name, config, make);
}

Capabilities synthesizer_capabilities() {
  return {.causal = true,
          .any_length = false,
          .as_heads = true,
          .reason = "synthetic logits are for self-attention"};
}

Tensor xavier_per_head(std::int64_t heads, std::int64_t in, std::int64_t out, Initialiser& initialiser) {
  return initialiser.xavier_uniform({heads, in, out}, in, out);
}

Tensor linear_per_head(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t heads = weight.size(0), in = weight.size(1), out = weight.size(2);
  // All heads read the same x, so their matrices stand side by side in one product.
  const Tensor y = matmul(x, reshape(permute(weight, {1, 0, 2}), {in, heads * out}));
  return split_heads(bias.defined() ? y + reshape(bias, {heads * out}) : y, heads);
}

std::int64_t take_hidden_width(const AttentionConfig& config) {
  return config.options.take_integer("hidden", config.inner_width() / config.heads, 1, most_units);
}

bool take_logit_bias(const AttentionConfig& config) {
  return config.options.take_bool("logit_bias", config.bias);
}

}  // namespace heed
