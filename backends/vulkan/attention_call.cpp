#include "heed/backends/vulkan/attention_call.h"

#include <algorithm>
#include <cmath>

#include "heed/base/error.h"

namespace heed::vulkan {

namespace {

/// The most bytes that a binding of a view can take.
std::uint64_t binding_bytes(const Gpu& gpu, const Tensor& x) {
  if (!x.defined() || x.count() == 0) return 0;
  std::int64_t last = 0;
  for (int axis = 0; axis < x.rank(); ++axis) last += (x.size(axis) - 1) * x.stride(axis);
  return static_cast<std::uint64_t>(last + 1) * size_of(x.dtype()) + gpu.limits().offset_alignment;
}

bool is_usable(const Gpu& gpu, const Tensor& x) {
  if (x.count() == 0) return true;
  if (x.size(3) > 1 && x.stride(3) != 1) return false;
  const std::int64_t step = x.stride(0);
  if (x.size(0) > 1 && step != x.size(2) * x.stride(2) && step != x.size(1) * x.stride(1)) return false;
  // One head has to fit, since nothing smaller can be split off.
  const Tensor one = x.view({1, 1, x.size(2), x.size(3)}, x.strides(), x.offset());
  return binding_bytes(gpu, one) <= gpu.limits().max_range;
}

/// Whether x has these strides; is_outside() and is_inside() check for [B, H, L, d] and [B, L, H, d] without
/// gaps.
bool has_strides(const Tensor& x, const Shape& strides) {
  for (int axis = 0; axis < 4; ++axis)
    if (x.size(axis) > 1 && x.stride(axis) != strides[axis]) return false;
  return true;
}
bool is_outside(const Tensor& x) {
  return has_strides(x, contiguous_strides(x.shape()));
}
bool is_inside(const Tensor& x) {
  const std::int64_t row = x.size(1) * x.size(3);
  return has_strides(x, {x.size(2) * row, x.size(3), row, 1});
}

AttentionOperand operand(const Tensor& x) {
  return {x, x.size(0) > 1 && x.stride(0) != x.size(2) * x.stride(2)};
}

Tensor without_gaps(const Tensor& x) {
  if (!x.defined() || x.is_contiguous()) return x;
  const Tensor copy = Tensor::empty(x.shape(), x.dtype(), x.device());
  backend_of(x).copy(x, copy);
  return copy;
}

/// Whether the address of the first element is a multiple of `elements` elements.
bool begins_aligned(const Tensor& x, std::int64_t elements) {
  const auto& block = static_cast<const Block&>(*x.storage());
  const std::uint64_t element = size_of(x.dtype());
  return (block.offset() + static_cast<std::uint64_t>(x.offset()) * element) %
             (static_cast<std::uint64_t>(elements) * element) ==
         0;
}

}  // namespace

AttentionOperand attention_input(const Gpu& gpu, const Tensor& x, std::int64_t step) {
  if (is_usable(gpu, x) && AttentionCall::is_aligned(operand(x), step)) return operand(x);
  const Tensor compact = Tensor::empty(x.shape(), x.dtype(), x.device());
  backend_of(x).copy(x, compact);
  return operand(compact);
}

AttentionOperand attention_output(const Gpu& gpu, const Tensor& x, std::int64_t step) {
  const bool dense = is_outside(x) || is_inside(x);
  const bool as_is = dense && is_usable(gpu, x) && AttentionCall::is_aligned(operand(x), step);
  const Tensor to = as_is ? x : Tensor::empty(x.shape(), x.dtype(), x.device());
  return {to, is_outside(to)};
}

void finish_output(const AttentionOperand& written, const Tensor& x) {
  if (written.tensor.storage() != x.storage()) backend_of(x).copy(written.tensor, x);
}

AttentionCall::AttentionCall(const AttentionArgs& arguments)
    : gpu(gpu_of(arguments.query)),
      batch(arguments.query.size(0)),
      heads(arguments.query.size(1)),
      queries(arguments.query.size(2)),
      keys(arguments.key.size(2)),
      key_width(arguments.query.size(3)),
      value_width(arguments.value.size(3)),
      args(arguments),
      query(attention_input(gpu, args.query)),
      key(attention_input(gpu, args.key)),
      value(attention_input(gpu, args.value)),
      key_mask(without_gaps(args.key_mask)),
      bias(without_gaps(args.bias)) {
  if (args.mask.defined()) mask = mask_bits();
  if (args.pattern) pattern = pattern_lists();
}

double AttentionCall::area() const {
  const auto all = static_cast<double>(batch * heads);
  if (!args.pattern) return all * static_cast<double>(queries) * static_cast<double>(keys);
  const BlockPattern& blocks = *args.pattern;
  return all / static_cast<double>(blocks.heads) *
         static_cast<double>(blocks.columns.count() * blocks.block * blocks.block);
}

bool AttentionCall::is_aligned(const AttentionOperand& x, std::int64_t elements) {
  if (x.tensor.count() == 0) return true;
  return x.tensor.size(3) % elements == 0 && x.row_stride() % elements == 0 &&
         x.head_stride() % elements == 0 && x.tensor.stride(0) % elements == 0 &&
         begins_aligned(x.tensor, elements);
}

std::int64_t longest_tile(const AttentionCall& call, bool rows_are_queries) {
  const std::int64_t rows = rows_are_queries ? call.queries : call.keys;
  return call.args.pattern ? std::min(call.args.pattern->block, rows) : rows;
}

AttentionGroup square_group(const AttentionCall& call, bool rows_are_queries, std::int64_t result_width,
                            std::int64_t most_quads) {
  const std::int64_t columns = rows_are_queries ? call.keys : call.queries;
  const std::int64_t band = longest_tile(call, rows_are_queries);
  AttentionGroup group;
  group.lanes = band <= 16 && columns <= 128 ? 4 : band <= 32 ? 8 : 16;
  group.lanes = std::min(group.lanes, call.gpu.tuning().attention.lanes);
  // The shared memory that shaders/attention_products.glsl declares.
  const auto shared_bytes = [](std::int64_t lanes) { return 16 * 4 * lanes * (10 + lanes + 1) + 32 * lanes; };
  const Limits& limits = call.gpu.limits();
  while (group.lanes > 4 && (group.lanes * group.lanes > limits.max_invocations ||
                             shared_bytes(group.lanes) > limits.shared_bytes))
    group.lanes /= 2;
  group.invocations = group.lanes * group.lanes;
  const std::int64_t width = ceil_div(result_width, 4);
  group.slices = ceil_div(width, group.lanes * most_quads);
  group.own = ceil_div(width, group.lanes * group.slices);
  group.slices = ceil_div(width, group.lanes * group.own);
  return group;
}

AttentionPass::AttentionPass(const AttentionCall& call, bool rows_are_queries, const AttentionGroup& group)
    : call_(call),
      rows_are_queries_(rows_are_queries),
      rows_(rows_are_queries ? call.queries : call.keys),
      group_(group),
      tiles_(call.args.pattern ? ceil_div(rows_, call.args.pattern->block) *
                                     ceil_div(call.args.pattern->block, group.rows())
                               : ceil_div(rows_, group.rows())) {
  add(call.query, true, false);
  add(call.key, false, false);
  add(call.value, false, false);
  if (call.bias.defined())
    bound_.push_back({.operand = {call.bias, true}, .per_row = rows_are_queries, .is_bias = true});
}

AttentionPass& AttentionPass::add(const AttentionOperand& x, bool per_query, bool written) {
  bound_.push_back({x, per_query == rows_are_queries_, written, false});
  return *this;
}
AttentionPass& AttentionPass::input(const AttentionOperand& x, bool per_query) {
  return add(x, per_query, false);
}
AttentionPass& AttentionPass::output(const AttentionOperand& x, bool per_query) {
  return add(x, per_query, true);
}
AttentionPass& AttentionPass::statistics(const Tensor& x, bool written) {
  bound_.push_back({{x, true}, false, written, true});
  return *this;
}
AttentionPass& AttentionPass::bias_gradient(const Tensor& x) {
  bound_.push_back({.operand = {x, true}, .per_row = true, .written = true, .is_bias = true});
  group_.slices = most_column_tiles();
  return *this;
}

const AttentionPass::Bound* AttentionPass::written_bias() const {
  for (const Bound& bound : bound_)
    if (bound.is_bias && bound.written) return &bound;
  return nullptr;
}

/// The most tiles of columns in any row of tiles.
std::int64_t AttentionPass::most_column_tiles() const {
  std::int64_t columns = call_.keys;
  if (const BlockPattern* pattern = call_.args.pattern.get()) {
    const std::vector<std::int32_t> offsets = pattern->offsets.to_vector<std::int32_t>();
    std::int64_t blocks = 0;
    for (std::size_t i = 1; i < offsets.size(); ++i)
      blocks = std::max<std::int64_t>(blocks, offsets[i] - offsets[i - 1]);
    columns = checked_product("the columns of a block pattern", blocks, pattern->block);
  }
  return std::max<std::int64_t>(1, ceil_div(columns, group_.columns()));
}

std::int64_t AttentionPass::first_row_of(std::int64_t tile) const {
  const std::int64_t side = group_.rows();
  if (!call_.args.pattern) return std::min(tile * side, rows_);
  const std::int64_t block = call_.args.pattern->block, tiles = ceil_div(block, side);
  return std::min(tile / tiles * block + tile % tiles * side, rows_);
}

Tensor AttentionPass::view_of(const Bound& bound, const AttentionPart& part) const {
  const Tensor& x = bound.operand.tensor;
  if (x.count() == 0) return x;
  Shape shape = x.shape();
  std::int64_t offset = x.offset();
  if (!bound.is_bias || shape[0] > 1) shape[0] = part.batches, offset += part.batch * x.stride(0);
  if (!bound.is_bias || shape[1] > 1) shape[1] = part.heads, offset += part.head * x.stride(1);
  if (bound.per_row) {
    const std::int64_t first = first_row_of(part.tile);
    // A tile may end early, but no later tile begins before its end.
    shape[2] = first_row_of(part.tile + part.tiles) - first;
    offset += first * x.stride(2);
  }
  return x.view(shape, x.strides(), offset);
}

bool AttentionPass::fits(const AttentionPart& part) const {
  const Limits& limits = call_.gpu.limits();
  if (part.batches > limits.max_groups || part.heads > limits.max_groups ||
      part.tiles * group_.slices > limits.max_groups)
    return false;
  // Heads with patterns of their own cannot share a walk over the columns.
  const Bound* gradient = written_bias();
  const BlockPattern* pattern = call_.args.pattern.get();
  if (gradient && gradient->operand.tensor.size(1) == 1 && pattern && pattern->heads > 1 && part.heads > 1)
    return false;
  return std::ranges::all_of(bound_, [&](const Bound& bound) {
    return binding_bytes(call_.gpu, view_of(bound, part)) <= limits.max_range;
  });
}

void AttentionPass::run(const char* shader, double flops) const {
  run_part(shader, flops, {0, call_.batch, 0, call_.heads, 0, tiles_});
}

void AttentionPass::run_part(const char* shader, double flops, const AttentionPart& part) const {
  if (part.batches == 0 || part.heads == 0 || part.tiles == 0) return;
  AttentionPart first = part, second = part;
  const auto halve = [](std::int64_t all, std::int64_t& count, std::int64_t& begin, std::int64_t& rest) {
    count = all / 2;
    begin += count;
    rest = all - count;
  };
  if (fits(part) || (part.batches == 1 && part.heads == 1 && part.tiles == 1)) {
    launch(shader, flops, part);
    return;
  }
  if (part.batches > 1) {
    halve(part.batches, first.batches, second.batch, second.batches);
  } else if (part.heads > 1) {
    halve(part.heads, first.heads, second.head, second.heads);
  } else {
    halve(part.tiles, first.tiles, second.tile, second.tiles);
  }
  run_part(shader, flops / 2, first);
  run_part(shader, flops / 2, second);
}

std::uint32_t AttentionPass::flags() const {
  std::uint32_t flags = 0, bit = 1;
  const auto add = [&](bool set) {
    if (set) flags |= bit;
    bit <<= 1;
  };
  add(call_.key_mask.defined());
  add(call_.mask.defined());
  add(call_.args.causal);
  add(call_.args.pattern != nullptr);
  add(call_.args.pattern && call_.args.pattern->heads > 1);
  add(std::ranges::all_of(bound_, [](const Bound& bound) {
    return bound.written || bound.is_statistic || bound.is_bias || AttentionCall::is_aligned(bound.operand);
  }));
  for (int axis = 0; axis < 4; ++axis) add(call_.mask.defined() && call_.args.mask.stride(axis) != 0);
  add(call_.args.slopes.defined());
  add(call_.bias.defined());
  add(call_.bias.defined() && call_.bias.size(0) > 1);
  add(call_.bias.defined() && call_.bias.size(1) > 1);
  for (const Bound& bound : bound_)
    if (!bound.is_statistic && !bound.is_bias) add(bound.operand.heads_outside);
  return flags;
}

void AttentionPass::launch(const char* shader, double flops, const AttentionPart& part) const {
  const AttentionArgs& args = call_.args;
  const auto word = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  // A weight is dropped if unit_interval(word) < p, which is (word >> 8) < 2^24 p.
  const auto dropped = static_cast<std::uint32_t>(std::ceil(std::clamp(args.dropout, 0.0, 1.0) * 0x1p24));
  Launch launch(call_.gpu, shader_name(shader, args.query.dtype()),
                {word(group_.invocations), word(group_.lanes), word(call_.key_width), word(call_.value_width),
                 word(group_.own), flags(), dropped, args.pattern ? word(args.pattern->block) : 1,
                 word(group_.fragment_columns), word(group_.fragment_depth)});
  const Tensor no_keys;
  for (std::size_t i = 0; i < 3; ++i) launch.read(view_of(bound_[i], part));
  launch.read(call_.key_mask.defined() && call_.keys > 0
                  ? call_.key_mask.view({part.batches, call_.keys}, call_.key_mask.strides(),
                                        call_.key_mask.offset() + part.batch * call_.keys)
                  : no_keys);
  launch.read(call_.mask).read(call_.pattern).read(args.slopes);
  std::size_t next = 3;
  launch.read(call_.bias.defined() ? view_of(bound_[next++], part) : Tensor());
  for (; next < bound_.size(); ++next) {
    const Bound& bound = bound_[next];
    const Tensor view = view_of(bound, part);
    if (!bound.written) {
      launch.read(view);
    } else {
      bound.is_bias ? launch.update(view) : launch.write(view);
    }
  }
  launch.push(call_.queries).push(call_.keys).push(call_.heads);
  launch.push(part.batch * call_.heads + part.head).push(part.tile).push(args.scale);
  const RandomKey& key = args.dropout_key;
  launch.push(static_cast<std::uint32_t>(key.seed)).push(static_cast<std::uint32_t>(key.seed >> 32));
  launch.push(key.step).push(key.op);
  for (const Bound& bound : bound_)
    if (!bound.is_statistic && !bound.is_bias && !bound.written)
      launch.push(bound.operand.row_stride()).push(bound.operand.head_stride());
  launch.work(flops, 0);
  const Bound* gradient = written_bias();
  if (!gradient) {
    launch.groups(part.tiles * group_.slices, part.heads, part.batches);
    return;
  }
  const bool per_batch = gradient->operand.tensor.size(0) > 1,
             per_head = gradient->operand.tensor.size(1) > 1;
  launch.push(per_batch ? 1 : part.batches).push(per_head ? 1 : part.heads).push(group_.slices);
  launch.groups(part.tiles * group_.slices, per_head ? part.heads : 1, per_batch ? part.batches : 1);
}

}  // namespace heed::vulkan
