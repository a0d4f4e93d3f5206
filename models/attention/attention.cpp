#include "heed/models/attention/attention.h"

#include <algorithm>

#include "heed/autograd/ops.h"
#include "heed/core/backend.h"

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

/// x [B, N, d] with non-finite rows of padding set to 0, because 0 times NaN is NaN. Other rows
/// stay: a mechanism may divide by their norm.
Tensor with_finite_padding(const Tensor& x, const Tensor& mask) {
  if (!x.defined() || !mask.defined()) return x;
  const Tensor finite = isfinite(sum(x.detach(), 2, true));  // [B, N, 1]
  return where(logical_or(unsqueeze(mask, 2), finite), x, 0);
}

/// Repeats each row of x [S, ...] `times` times in succession: [S times, ...].
Tensor repeated(const Tensor& x, std::int64_t times) {
  if (!x.defined() || times == 1) return x;
  Shape each = unsqueeze(x, 1).shape(), all = x.shape();
  each[1] = times;
  all[0] *= times;
  return reshape(expand(unsqueeze(x, 1), each), all);
}

/// True when the elements of each step along axis 1 are contiguous and the steps follow one another
/// without gaps.
bool lies_by_steps(const Tensor& x) {
  std::int64_t expected = 1;
  for (int axis = x.rank() - 1; axis > 1; --axis) {
    if (x.stride(axis) != expected) return false;
    expected *= x.size(axis);
  }
  return expected > 0 && x.stride(1) == expected && x.stride(0) >= x.size(1) * expected &&
         x.stride(0) % expected == 0;
}

/// How many steps fit between the first step of a row and the end of the row's slot in the block.
std::int64_t room_of(const Tensor& x) {
  const std::int64_t row = x.stride(0), from = x.offset() % row;
  const std::int64_t end = x.offset() - from + x.size(0) * row;  // end of the last row's slot
  const bool whole = static_cast<std::size_t>(end) * size_of(x.dtype()) <= x.storage()->bytes();
  return whole ? (row - from) / x.stride(1) : x.size(1);
}

/// `length` steps of x [R, T, ...] from `begin` on, a view that may reach beyond T into the spare
/// room.
Tensor with_length(const Tensor& x, std::int64_t begin, std::int64_t length) {
  Shape shape = x.shape();
  shape[1] = length;
  return x.view(shape, x.strides(), x.offset() + begin * x.stride(1));
}

void write_into(const Tensor& values, const Tensor& to) {
  if (values.count() == 0) return;
  backend_of(to).copy(values.detach(), to);
  to.storage()->overwritten();
}

}  // namespace

void AttentionCache::reorder(const RowOrder& rows, const RowOrder& memory_rows) {
  for (Tensor* held : {&key, &value, &mask})
    if (held->defined()) *held = (of_memory ? memory_rows : rows).of(std::move(*held));
  for (AttentionCache& part : parts) part.reorder(rows, memory_rows);
}

std::int64_t AttentionCache::extend_mask(const AttentionInput& input) {
  const Tensor& held = key.defined() ? key : value;
  const std::int64_t before = held.defined() ? held.size(1) : 0;
  if (!input.mask.defined() && !mask.defined()) return before;
  const std::int64_t batch = input.x.size(0);
  const Device device = input.x.device();
  const auto all_real = [&](std::int64_t length) {
    return Tensor::ones({batch, length}, DType::i32, device);
  };
  const Tensor added = input.mask.defined() ? input.mask : all_real(input.x.size(1));
  if (!mask.defined() && before > 0) mask = all_real(before);
  mask = appended(std::move(mask), added);
  return before;
}

Tensor Attention::operator()(const AttentionInput& input, Context& context) try {
  check_input(config_, input);
  check(!input.global.defined() || takes_global_tokens(), "this variant has no global tokens");
  if (input.x.count() == 0) return input.x;  // no tokens
  const Tensor out =
      forward({with_finite_padding(input.x, input.mask), input.mask,
               with_finite_padding(input.memory, input.memory_mask), input.memory_mask, input.global},
              context);
  check(out.defined(), "gave no output");
  check(out.shape() == input.x.shape(), "gave an output of shape ", out.shape(), " for inputs of shape ",
        input.x.shape());
  if (!input.mask.defined() || counts_padding()) return out;
  return where(unsqueeze(input.mask, 2), out, 0);
} catch (Error& error) {
  // A part of this layer, such as a Linear, may already have added its own path.
  const std::string where = path();
  if (where.empty() || !std::string_view(error.what()).starts_with(where))
    error.add_context(described("attention") + ": ");
  throw;
}

Tensor Attention::step(const AttentionInput& input, AttentionCache& cache, Context& context) {
  check(!input.global.defined(), described("attention"),
        ": when decoding, global tokens are those of the configuration");
  const std::int64_t before = cache.extend_mask(input);
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

void Attention::show(Context& context, std::string_view name, const std::function<Tensor()>& value) const {
  if (context.capture) show(context, name, value());
}

void Attention::show_weights(Context& context, const Tensor& query, const Tensor& key,
                             const AttentionOptions& options) const {
  show(context, "weights", [&] { return attention_weights(query.detach(), key.detach(), options); });
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

Tensor appended(Tensor held, const Tensor& added) {
  const std::int64_t before = held.defined() ? held.size(1) : 0, after = before + added.size(1);
  if (held.tracked() || added.tracked()) return before > 0 ? concat({held, added}, 1) : added;
  if (before > 0) {
    Shape others = added.shape();
    if (others.rank() == held.rank()) others[1] = before;
    check(others == held.shape() && added.dtype() == held.dtype() && added.device() == held.device(),
          "appended: cannot add ", added.dtype(), " of shape ", added.shape(), " to ", held.dtype(),
          " of shape ", held.shape());
  }
  if (before == 0 || !held.is_sole_owner() || !lies_by_steps(held) || room_of(held) < after) {
    Shape shape = added.shape();
    shape[1] = after + std::max<std::int64_t>(16, after / 2);
    const Tensor block = Tensor::empty(shape, added.dtype(), added.device());
    if (before > 0) write_into(held, with_length(block, 0, before));
    held = with_length(block, 0, before);
  }
  write_into(added, with_length(held, before, added.size(1)));
  return with_length(held, 0, after);
}

RowOrder::RowOrder(std::span<const std::int32_t> rows) : rows_(rows.begin(), rows.end()) {
  const auto count = static_cast<std::int32_t>(rows_.size());
  for (std::int32_t place = 0; place < count; ++place)
    if (rows_[static_cast<std::size_t>(place)] != place) moved_.push_back(place);
  for (const std::int32_t place : moved_) {
    const std::int32_t from = rows_[static_cast<std::size_t>(place)];
    const bool is_taken = from >= 0 && from < count && rows_[static_cast<std::size_t>(from)] != from;
    in_place_ = in_place_ && !is_taken;
  }
}

Tensor RowOrder::of(Tensor held) const {
  const auto count = static_cast<std::int64_t>(rows_.size()), before = held.size(0);
  for (const std::int32_t row : rows_)
    check(row >= 0 && row < before, "reorder: row ", row, " is not one of ", before);
  if (moved_.empty() && count == before) return held;
  const bool moves =
      in_place_ && count <= before && held.device() == Device{} && !held.tracked() && held.is_sole_owner();
  if (!moves) return index_select(held, 0, Tensor::from(rows_, {count}, held.device()));
  for (const std::int32_t place : moved_)
    write_into(select(held, 0, rows_[static_cast<std::size_t>(place)]), select(held, 0, place));
  return slice(held, 0, 0, count);
}

std::vector<std::int32_t> rows_that_go_on(const std::vector<bool>& keep) {
  const auto count = static_cast<std::size_t>(std::count(keep.begin(), keep.end(), true));
  std::vector<std::int32_t> rows;
  std::size_t last = keep.size();
  for (std::size_t place = 0; place < count; ++place) {
    std::size_t row = place;
    if (!keep[place]) {
      do --last;
      while (!keep[last]);
      row = last;
    }
    rows.push_back(static_cast<std::int32_t>(row));
  }
  return rows;
}

Tensor split_heads(const Tensor& x, std::int64_t heads) {
  check(x.rank() == 3 && heads > 0 && x.size(2) % heads == 0, "split_heads: cannot split shape ", x.shape(),
        " into ", heads, " heads");
  const std::int64_t width = x.size(2) / heads;
  if (!x.tracked() && x.stride(2) == 1)  // also for a block with spare room between rows
    return x.view({x.size(0), heads, x.size(1), width}, {x.stride(0), width, x.stride(1), 1}, x.offset());
  return permute(reshape(x, {x.size(0), x.size(1), heads, width}), {0, 2, 1, 3});
}

Tensor merge_heads(const Tensor& x) {
  check(x.rank() == 4, "merge_heads: expects [B, H, N, dh], got shape ", x.shape());
  return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

Tensor without_padding(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return x;
  return where(unsqueeze(x.rank() == 4 ? unsqueeze(mask, 1) : mask, -1), x, 0);
}

static std::int64_t key_width(const AttentionConfig& config, std::int64_t key_heads) {
  return key_heads > 0 ? config.inner_width() / config.heads * key_heads : config.inner_width();
}

Projections::Projections(const AttentionConfig& config, Initialiser& initialiser, std::int64_t key_heads,
                         std::optional<bool> output_bias)
    : query(config.width, config.inner_width(), config.bias, initialiser),
      key(config.width, key_width(config, key_heads), config.bias, initialiser),
      value(config.width, key_width(config, key_heads), config.bias, initialiser),
      output(config.inner_width(), config.width, output_bias.value_or(config.bias), initialiser) {}

Projections::Projected Projections::of(const Tensor& x) const {
  std::vector<Tensor> each = Linear::each({&query, &key, &value}, x);
  return {std::move(each[0]), std::move(each[1]), std::move(each[2])};
}

Projections::Projected Projections::of_memory(const Tensor& memory) const {
  std::vector<Tensor> each = Linear::each({&key, &value}, memory);
  return {{}, std::move(each[0]), std::move(each[1])};
}

void Attention::check_length(std::int64_t length) const {
  check(length <= config_.max_length, "a sequence of ", length,
        " tokens is longer than max_length = ", config_.max_length, ", for which this attention was built");
}

void Attention::add_projections(Projections& w) {
  add_module("query", w.query);
  add_module("key", w.key);
  add_module("value", w.value);
  add_module("output", w.output);
}

}  // namespace heed
