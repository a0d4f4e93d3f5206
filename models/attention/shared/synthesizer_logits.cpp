#include "heed/models/attention/shared/synthesizer_logits.h"

#include <algorithm>
#include <string>

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/models/attention/attention.h"

namespace heed {
namespace {

/// i32 [queries, keys]: key j is allowed for the query at first + i when j <= first + i.
Tensor causal_mask(std::int64_t first, std::int64_t queries, std::int64_t keys, Device device) {
  const Tensor row = Tensor::arange(queries, DType::i32, device).view({queries, 1});
  return less_equal(Tensor::arange(keys, DType::i32, device).view({1, keys}), row + first);
}

//   Y_h = softmax( S_h(X) ) v_h over the allowed keys,  v = split(X Wv)    (eq. 2)
//   O   = merge(Y) Wo
// Synthetic logits are not scaled by 1 / sqrt(dh).
class Synthesizer : public Attention {
 public:
  Synthesizer(std::string name, const AttentionConfig& config,
              LogitsPtr (*make)(const AttentionConfig&, Initialiser&))
      : Attention(config),
        name_(std::move(name)),
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
    cache.key = appended(std::move(cache.key), input.x);  // dot-product logits need all inputs
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
    const LogitFactors product = logits_->factors(x, first);
    const std::vector<Tensor> rows = logits_->matrix_rows(x, first);
    const bool same_for_all =
        std::all_of(rows.begin(), rows.end(), [](const Tensor& r) { return r.size(0) == 1; });
    const bool drops = context.training && config().dropout > 0;
    if (!product.rows.defined() && same_for_all && x.size(0) > 1 && !mask.defined() && !drops)
      return output_(shared_product(shared_weights(rows, first, x.size(1), context), value));
    return output_(merge_heads(fused(product, rows, split_heads(value, config().heads), mask, context)));
  }

  /// The fused kernel computes the product tile by tile and adds the matrix, so the product itself needs no
  /// N x N memory. A matrix that must be materialised is made for some rows at a time.
  Tensor fused(const LogitFactors& product, const std::vector<Tensor>& rows, const Tensor& value,
               const Tensor& mask, Context& context) const {
    // First the tensors with one row per query, then those that all queries share.
    std::vector<Tensor> inputs = rows;
    if (product.rows.defined()) inputs.insert(inputs.end(), {product.rows, product.columns});
    inputs.push_back(value);
    const std::size_t by_row = rows.size() + (product.rows.defined() ? 1 : 0);
    const std::int64_t keys = value.size(2), queries = inputs[0].size(2), at_once = rows_at_once(rows, keys);
    if (at_once >= queries || context.capture) return part(inputs, keys, mask, context);

    std::vector<Tensor> outputs;
    for (std::int64_t begin = 0; begin < queries; begin += at_once) {
      const std::int64_t end = std::min(begin + at_once, queries);
      const std::int64_t seen = config().causal ? keys - queries + end : keys;
      std::vector<Tensor> own;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        own.push_back(i < by_row ? slice(inputs[i], 2, begin, end) : slice(inputs[i], 2, 0, seen));
      const auto segment = [this, seen, mask, training = context.training](std::span<const Tensor> parts,
                                                                           Random& random) {
        Context inner;
        inner.training = training;
        inner.random = random;
        const Tensor out = part(parts, seen, mask, inner);
        random = inner.random;
        return out;
      };
      outputs.push_back(recompute_in_backward(segment, std::move(own), context.random));
    }
    return concat(outputs, 2);
  }

  /// How many rows of the matrix to hold at once: all of them if the matrix is no larger than the tensors
  /// it is made from; otherwise as many as fit 64 MB of f32, but at least 64 to keep the kernel busy.
  std::int64_t rows_at_once(const std::vector<Tensor>& rows, std::int64_t keys) const {
    constexpr std::int64_t most_numbers = std::int64_t{1} << 24, fewest_rows = 64;
    if (rows.empty()) return keys;
    std::int64_t batch = 1, given = 0;
    for (const Tensor& one : rows) {
      batch = std::max(batch, one.size(0));
      given += one.count();
    }
    const std::int64_t of_a_row = batch * config().heads * keys;
    if (of_a_row * rows[0].size(2) <= given) return keys;
    return std::max(most_numbers / of_a_row, fewest_rows);
  }

  /// softmax(rows columns^T + matrix) v, [B, H, n, dh], from the inputs that fused() collects.
  Tensor part(std::span<const Tensor> inputs, std::int64_t keys, const Tensor& mask, Context& context) const {
    const std::size_t matrix_parts = logits_->matrix_parts();
    const Tensor& value = inputs.back();
    AttentionOptions options = kernel_options(mask.defined() ? slice(mask, 1, 0, keys) : mask, context);
    options.scale = 1;
    options.causal = config().causal;
    if (matrix_parts > 0) options.bias = logits_->matrix(inputs.first(matrix_parts), keys);
    const auto for_all = [&](const Tensor& x) {
      return expand(contiguous(x), {value.size(0), value.size(1), x.size(2), x.size(3)});
    };
    Tensor rows, columns;
    if (matrix_parts + 1 == inputs.size()) {  // no product: scores are 0 before the matrix is added
      const Tensor zero = Tensor::zeros({1, 1, 1, 1}, value.dtype(), value.device());
      rows = expand(zero, {value.size(0), value.size(1), inputs[0].size(2), 1});
      columns = expand(zero, {value.size(0), value.size(1), keys, 1});
    } else {
      rows = for_all(inputs[matrix_parts]);
      columns = for_all(inputs[matrix_parts + 1]);
    }
    show_weights(context, rows, columns, options);
    return attention(rows, columns, value, options);
  }

  /// softmax(S) [1, H, n, N] over the allowed keys, for an S that all samples share.
  Tensor shared_weights(const std::vector<Tensor>& rows, std::int64_t first, std::int64_t keys,
                        Context& context) const {
    const Tensor s = logits_->matrix(rows, keys);
    const Tensor weights =
        config().causal ? masked_softmax(s, causal_mask(first, s.size(2), keys, s.device())) : softmax(s);
    show(context, "weights", weights);
    return weights;
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

AttentionVariant synthesizer_variant(std::string name,
                                     LogitsPtr (*make)(const AttentionConfig&, Initialiser&)) {
  const auto layer = [name, make](const AttentionConfig& config) -> std::unique_ptr<Attention> {
    return std::make_unique<Synthesizer>(name, config, make);
  };
  return {std::move(name),
          {.causal = true,
           .any_length = false,
           .as_heads = true,
           .reason = "synthetic logits are for self-attention"},
          layer};
}

Tensor xavier_per_head(std::int64_t heads, std::int64_t in, std::int64_t out, Initialiser& initialiser) {
  return initialiser.xavier_uniform({heads, in, out}, in, out);
}

Tensor linear_per_head(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const std::int64_t heads = weight.size(0), in = weight.size(1), out = weight.size(2);
  // All heads read the same x, so their matrices are placed side by side in one product.
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
