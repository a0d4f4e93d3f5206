#include "heed/models/attention/attention.h"

#include "heed/autograd/ops.h"

namespace heed {
namespace {

void check_mask(const char* name, const Tensor& mask, const Tensor& tokens) {
  if (!mask.defined()) return;
  const Shape expected{tokens.size(0), tokens.size(1)};
  check(mask.dtype() == DType::i32 && mask.shape() == expected, name, " must be i32 of shape ", expected,
        ", got ", mask.dtype(), " of shape ", mask.shape());
}

void check_input(const AttentionConfig& config, const AttentionInput& input) {
  check(input.x.rank() == 3 && input.x.size(2) == config.width, "expects inputs [B, N, ", config.width,
        "], got shape ", input.x.shape());
  check_mask("mask", input.mask, input.x);
  check_mask("global", input.global, input.x);
  check(input.memory.defined() == config.cross,
        config.cross ? "cross-attention needs a memory" : "self-attention takes no memory");
  if (!config.cross) return;
  check(input.memory.rank() == 3 && input.memory.size(0) == input.x.size(0) &&
            input.memory.size(2) == config.width,
        "expects a memory [", input.x.size(0), ", M, ", config.width, "], got shape ", input.memory.shape());
  check_mask("memory_mask", input.memory_mask, input.memory);
}

/// Each row of x [S, ...] `times` times: [S times, ...].
Tensor repeated(const Tensor& x, std::int64_t times) {
  if (!x.defined() || times == 1) return x;
  Shape each = unsqueeze(x, 1).shape(), all = x.shape();
  each[1] = times;
  all[0] *= times;
  return reshape(expand(unsqueeze(x, 1), each), all);
}

}  // namespace

void AttentionCache::reorder(const RowOrder& rows, const RowOrder& memory_rows) {
  for (Tensor* held : {&key, &value, &mask}) {
    if (held->defined()) *held = (of_memory ? memory_rows : rows).of(std::move(*held));
  }
  for (AttentionCache& part : parts) part.reorder(rows, memory_rows);
}

void AttentionCache::extend_mask(const AttentionInput& input, std::int64_t before) {
  if (!input.mask.defined() && !mask.defined()) return;
  const std::int64_t batch = input.x.size(0);
  const Device device = input.x.device();
  const auto all_real = [&](std::int64_t length) {
    return Tensor::ones({batch, length}, DType::i32, device);
  };
  const Tensor added = input.mask.defined() ? input.mask : all_real(input.x.size(1));
  if (!mask.defined() && before > 0) mask = all_real(before);
  mask = appended(std::move(mask), added);
}

Tensor Attention::operator()(const AttentionInput& input, Context& context) try {
  check_input(config_, input);
  check(!input.global.defined() || takes_global_tokens(), "this variant has no global tokens");
  if (input.x.count() == 0) return input.x;  // nobody attends
  const Tensor out = forward(input, context);
  check(out.defined(), "gave no output");
  check(out.shape() == input.x.shape(), "gave an output of shape ", out.shape(), " for inputs of shape ",
        input.x.shape());
  if (!input.mask.defined()) return out;
  // A selection and not a product: it keeps no copy of `out` for backward.
  const Tensor zero = Tensor::zeros({1}, out.dtype(), out.device());
  return where(unsqueeze(input.mask, 2), out, zero);
} catch (Error& error) {
  // A part of this layer, such as a Linear, has said already where it is.
  const std::string where = path();
  if (where.empty() || !std::string_view(error.what()).starts_with(where))
    error.add_context(described("attention") + ": ");
  throw;
}

Tensor Attention::step(const AttentionInput& input, AttentionCache& cache, Context& context) {
  check(!input.global.defined(), described("attention"),
        ": when decoding, global tokens are those of the configuration");
  const std::int64_t before = cache.key.defined() ? cache.key.size(1) : 0;
  cache.extend_mask(input, before);
  cache.key = appended(std::move(cache.key), input.x);
  const std::int64_t sharing = rows_per_memory(input);
  const Tensor out =
      (*this)({cache.key, cache.mask, repeated(input.memory, sharing), repeated(input.memory_mask, sharing)},
              context);
  return slice(out, 1, before, out.size(1));
}

std::int64_t Attention::rows_per_memory(const AttentionInput& input) const {
  if (!config_.cross) return 1;
  check(input.memory.defined() && input.memory.size(0) > 0 && input.x.size(0) % input.memory.size(0) == 0,
        described("attention"), ": a step of ", input.x.size(0),
        " rows needs a memory for each, or for each so many, got ",
        input.memory.defined() ? input.memory.size(0) : 0);
  return input.x.size(0) / input.memory.size(0);
}

Tensor Attention::by_memory(const AttentionInput& input) const {
  return rows_per_memory(input) == 1 ? input.x
                                     : reshape(input.x, {input.memory.size(0), -1, input.x.size(2)});
}

void Attention::show(Context& context, std::string_view name, const Tensor& value) const {
  if (context.capture) context.capture->entries.push_back({path(), std::string(name), value.detach()});
}

void Attention::show_weights(Context& context, const Tensor& query, const Tensor& key,
                             const AttentionOptions& options) const {
  if (context.capture) show(context, "weights", attention_weights(query.detach(), key.detach(), options));
}

AttentionOptions Attention::kernel_options(const Tensor& key_mask, Context& context) const {
  AttentionOptions options;
  options.key_mask = key_mask;
  if (context.training && config_.dropout > 0) {
    options.dropout = config_.dropout;
    options.dropout_key = context.random.next();
  }
  return options;
}

}  // namespace heed
