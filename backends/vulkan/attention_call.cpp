#include "heed/backends/vulkan/attention.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "heed/backends/vulkan/shader_flags.h"
#include "heed/base/error.h"

namespace heed::vulkan {

namespace {

bool is_usable(const Gpu& gpu, const Tensor& x) {
  if (x.count() == 0) return true;
  if (x.size(3) > 1 && x.stride(3) != 1) return false;
  const std::int64_t step = x.stride(0);
  if (x.size(0) > 1 && step != x.size(2) * x.stride(2) && step != x.size(1) * x.stride(1)) return false;
  // One head has to fit, since nothing smaller can be split off.
  const Tensor one = x.view({1, 1, x.size(2), x.size(3)}, x.strides(), x.offset());
  return range_holds(gpu, spanned_elements(one), one.dtype());
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
  return !x.defined() || x.is_contiguous() ? x : compact(x);
}

/// Whether the address of the first element is a multiple of `elements` elements.
bool begins_aligned(const Tensor& x, std::int64_t elements) {
  return byte_offset(x) % (static_cast<std::uint64_t>(elements) * size_of(x.dtype())) == 0;
}

// --- masks in the form that the shaders read

/// Packs the mask, one bit per entry, in halves if it is too large for a binding.
void pack_bits(Gpu& gpu, const Tensor& mask, const Tensor& bits) {
  if (!range_holds(gpu, spanned_elements(mask), mask.dtype())) {
    std::int64_t longest = 0;
    int widest = -1;
    for (int axis = 0; axis < 3; ++axis)
      if (mask.size(axis) > 1 && mask.stride(axis) > longest) longest = mask.stride(axis), widest = axis;
    if (widest >= 0) {
      for (const Part part : halves(mask.size(widest)))
        pack_bits(gpu, narrowed(mask, widest, part), narrowed(bits, widest, part));
      return;
    }
  }
  const std::uint32_t size = std::min(256u, gpu.limits().max_invocations);
  Launch launch(gpu, "attention_mask", {size, size});
  launch.read(mask).write(bits).push(bits.count(), mask.size(1), mask.size(2), mask.size(3));
  for (int axis = 0; axis < 4; ++axis) launch.push(mask.stride(axis));
  for (int axis = 0; axis < 3; ++axis) launch.push(bits.stride(axis));
  launch.work(0, static_cast<double>(mask.count()) * 4);
  launch.folded_groups(ceil_div(bits.count(), size));
}

/// The lists of one direction of a pattern: offsets, columns, mask ids.
struct Lists {
  std::vector<std::int32_t> offsets, columns, ids;
};

/// Turns lists of the blocks that each row of blocks sees into lists of the blocks that see each column, rows
/// ascending.
Lists transposed(const Lists& lists, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  Lists result;
  result.offsets.assign(static_cast<std::size_t>(heads * columns + 1), 0);
  result.columns.resize(lists.columns.size());
  result.ids.resize(lists.ids.size());
  const auto at = [](const std::vector<std::int32_t>& list, std::int64_t i) {
    return list[static_cast<std::size_t>(i)];
  };
  const auto for_each = [&](const auto& visit) {
    for (std::int64_t band = 0; band < heads * rows; ++band)
      for (std::int64_t e = at(lists.offsets, band); e < at(lists.offsets, band + 1); ++e)
        visit(static_cast<std::size_t>(band / rows * columns + at(lists.columns, e)), band % rows,
              static_cast<std::size_t>(e));
  };
  for_each([&](std::size_t to, std::int64_t, std::size_t) { ++result.offsets[to + 1]; });
  for (std::size_t i = 1; i < result.offsets.size(); ++i) result.offsets[i] += result.offsets[i - 1];
  std::vector<std::int32_t> next = result.offsets;
  for_each([&](std::size_t to, std::int64_t row, std::size_t e) {
    const auto place = static_cast<std::size_t>(next[to]++);
    result.columns[place] = static_cast<std::int32_t>(row);
    result.ids[place] = lists.ids[e];
  });
  return result;
}

/// The masks that the blocks use, one bit per entry.
std::vector<std::int32_t> packed_masks(const BlockPattern& pattern, const std::vector<std::int32_t>& ids) {
  const std::int64_t used = ids.empty() ? 0 : *std::max_element(ids.begin(), ids.end()) + 1;
  const std::int64_t entries = used * pattern.block * pattern.block;
  std::vector<std::int32_t> words(static_cast<std::size_t>(ceil_div(entries, 32)), 0);
  const std::vector<std::int32_t> masks =
      used > 0 ? pattern.masks.to_vector<std::int32_t>() : std::vector<std::int32_t>{};
  for (std::int64_t i = 0; i < entries; ++i)
    if (masks[static_cast<std::size_t>(i)] != 0)
      words[static_cast<std::size_t>(i / 32)] |= static_cast<std::int32_t>(1u << (i % 32));
  return words;
}

/// Packs a pattern for shaders/attention.glsl: a header with the word positions of offsets, columns
/// and mask ids (words 0 to 2; of the transposed lists, words 3 to 5) and of the masks' bits (word
/// 6), followed by all of these.
std::vector<std::int32_t> packed(const BlockPattern& pattern) {
  pattern.check_lists();
  const std::int64_t rows = ceil_div(pattern.queries, pattern.block),
                     columns = ceil_div(pattern.keys, pattern.block);
  const Lists lists{pattern.offsets.to_vector<std::int32_t>(), pattern.columns.to_vector<std::int32_t>(),
                    pattern.mask_ids.to_vector<std::int32_t>()};
  const Lists back = transposed(lists, pattern.heads, rows, columns);
  const std::vector<std::int32_t> masks = packed_masks(pattern, lists.ids);
  std::vector<std::int32_t> words(7, 0);
  std::size_t slot = 0;
  for (const auto* part :
       {&lists.offsets, &lists.columns, &lists.ids, &back.offsets, &back.columns, &back.ids, &masks}) {
    words[slot++] = static_cast<std::int32_t>(words.size());
    std::copy(part->begin(), part->end(), std::back_inserter(words));  // GCC 14 warns of an insert() here
  }
  return words;
}

}  // namespace

AttentionOperand attention_input(const Gpu& gpu, const Tensor& x, std::int64_t step) {
  const bool as_is = is_usable(gpu, x) && AttentionCall::is_aligned(operand(x), step);
  return operand(as_is ? x : compact(x));
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

Tensor AttentionCall::mask_bits() const {
  // An axis along which the mask does not change is packed once.
  Shape shape = args.mask.shape();
  for (int axis = 0; axis < 4; ++axis)
    if (args.mask.stride(axis) == 0) shape[axis] = std::min<std::int64_t>(shape[axis], 1);
  const Tensor distinct = args.mask.view(shape, args.mask.strides(), args.mask.offset());
  Shape words = shape;
  words[3] = ceil_div(shape[3], 32);
  const Tensor bits = Tensor::empty(words, DType::i32, args.mask.device());
  if (bits.count() > 0) pack_bits(gpu, distinct, bits);
  return bits;
}

Tensor AttentionCall::pattern_lists() const {
  const Device device = args.query.device();
  return args.pattern->device_copies.get(device, [&] {
    const std::vector<std::int32_t> words = packed(*args.pattern);
    return Tensor::from(words, {static_cast<std::int64_t>(words.size())}, device);
  });
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
  // The shared memory that shaders/attention_products.comp declares.
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

std::int64_t AttentionPass::tile_first_row(std::int64_t tile) const {
  const std::int64_t side = group_.rows();
  if (!call_.args.pattern) return std::min(tile * side, rows_);
  const std::int64_t block = call_.args.pattern->block, tiles = ceil_div(block, side);
  return std::min(tile / tiles * block + tile % tiles * side, rows_);
}

Tensor AttentionPass::bind_view(const Bound& bound, const PassPart& part) const {
  const Tensor& x = bound.operand.tensor;
  if (x.count() == 0) return x;
  Shape shape = x.shape();
  std::int64_t offset = x.offset();
  if (!bound.is_bias || shape[0] > 1) shape[0] = part.batches, offset += part.batch * x.stride(0);
  if (!bound.is_bias || shape[1] > 1) shape[1] = part.heads, offset += part.head * x.stride(1);
  if (bound.per_row) {
    const std::int64_t first = tile_first_row(part.tile);
    // A tile may end early, but no later tile begins before its end.
    shape[2] = tile_first_row(part.tile + part.tiles) - first;
    offset += first * x.stride(2);
  }
  return x.view(shape, x.strides(), offset);
}

bool AttentionPass::fits(const PassPart& part) const {
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
    const Tensor view = bind_view(bound, part);
    return view.count() == 0 || range_holds(call_.gpu, spanned_elements(view), view.dtype());
  });
}

void AttentionPass::run(const char* shader, double flops) const {
  run_part(shader, flops, {0, call_.batch, 0, call_.heads, 0, tiles_});
}

void AttentionPass::run_part(const char* shader, double flops, const PassPart& part) const {
  if (part.batches == 0 || part.heads == 0 || part.tiles == 0) return;
  if (fits(part) || (part.batches == 1 && part.heads == 1 && part.tiles == 1))
    return launch(shader, flops, part);
  PassPart first = part, second = part;
  const auto halve = [&](std::int64_t PassPart::*begin, std::int64_t PassPart::*count) {
    first.*count = part.*count / 2;
    second.*count = part.*count - first.*count;
    second.*begin += first.*count;
  };
  if (part.batches > 1)
    halve(&PassPart::batch, &PassPart::batches);
  else if (part.heads > 1)
    halve(&PassPart::head, &PassPart::heads);
  else
    halve(&PassPart::tile, &PassPart::tiles);
  run_part(shader, flops / 2, first);
  run_part(shader, flops / 2, second);
}

std::uint32_t AttentionPass::flags() const {
  const AttentionArgs& args = call_.args;
  const auto mask_has = [&](int axis) { return call_.mask.defined() && args.mask.stride(axis) != 0; };
  const auto bias_has = [&](int axis) { return call_.bias.defined() && call_.bias.size(axis) > 1; };
  const bool aligned = std::ranges::all_of(bound_, [](const Bound& bound) {
    return bound.written || bound.is_statistic || bound.is_bias || AttentionCall::is_aligned(bound.operand);
  });
  std::uint32_t flags =
      bit_if(call_.key_mask.defined(), attention_key_mask_bit) |
      bit_if(call_.mask.defined(), attention_mask_bit) | bit_if(args.causal, attention_causal_bit) |
      bit_if(args.pattern != nullptr, attention_pattern_bit) |
      bit_if(args.pattern && args.pattern->heads > 1, attention_pattern_per_head_bit) |
      bit_if(aligned, attention_aligned_bit) | bit_if(mask_has(0), attention_mask_has_batch_bit) |
      bit_if(mask_has(1), attention_mask_has_heads_bit) |
      bit_if(mask_has(2), attention_mask_has_queries_bit) | bit_if(mask_has(3), attention_mask_has_keys_bit) |
      bit_if(args.slopes.defined(), attention_slopes_bit) | bit_if(call_.bias.defined(), attention_bias_bit) |
      bit_if(bias_has(0), attention_bias_has_batch_bit) | bit_if(bias_has(1), attention_bias_has_heads_bit);
  std::uint32_t operand_bit = 1u << attention_operands_shift;
  for (const Bound& bound : bound_) {
    if (bound.is_statistic || bound.is_bias) continue;
    flags |= bit_if(bound.operand.heads_outside, operand_bit);
    operand_bit <<= 1;
  }
  return flags;
}

void AttentionPass::launch(const char* shader, double flops, const PassPart& part) const {
  const AttentionArgs& args = call_.args;
  const auto word = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  // A weight is dropped if unit_interval(word) < p, which is (word >> 8) < 2^24 p.
  const auto dropped = static_cast<std::uint32_t>(std::ceil(std::clamp(args.dropout, 0.0, 1.0) * 0x1p24));
  Launch launch(call_.gpu, shader_name(shader, args.query.dtype()),
                {word(group_.invocations), word(group_.lanes), word(call_.key_width), word(call_.value_width),
                 word(group_.own), flags(), dropped, args.pattern ? word(args.pattern->block) : 1,
                 word(group_.fragment_columns), word(group_.fragment_depth)});
  const Tensor no_keys;
  for (std::size_t i = 0; i < 3; ++i) launch.read(bind_view(bound_[i], part));
  launch.read(call_.key_mask.defined() && call_.keys > 0
                  ? call_.key_mask.view({part.batches, call_.keys}, call_.key_mask.strides(),
                                        call_.key_mask.offset() + part.batch * call_.keys)
                  : no_keys);
  launch.read(call_.mask, call_.pattern, args.slopes);
  std::size_t next = 3;
  launch.read(call_.bias.defined() ? bind_view(bound_[next++], part) : Tensor());
  for (; next < bound_.size(); ++next) {
    const Bound& bound = bound_[next];
    const Tensor view = bind_view(bound, part);
    if (!bound.written)
      launch.read(view);
    else
      bound.is_bias ? launch.update(view) : launch.write(view);
  }
  launch.push(call_.queries, call_.keys, call_.heads);
  launch.push(part.batch * call_.heads + part.head, part.tile, args.scale);
  const RandomKey& key = args.dropout_key;
  launch.push(static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32));
  launch.push(key.step, key.op);
  for (const Bound& bound : bound_)
    if (!bound.is_statistic && !bound.is_bias && !bound.written)
      launch.push(bound.operand.row_stride(), bound.operand.head_stride());
  launch.work(flops, 0);
  const Bound* gradient = written_bias();
  if (!gradient) {
    launch.groups(part.tiles * group_.slices, part.heads, part.batches);
    return;
  }
  const bool per_batch = gradient->operand.tensor.size(0) > 1,
             per_head = gradient->operand.tensor.size(1) > 1;
  launch.push(per_batch ? 1 : part.batches, per_head ? 1 : part.heads, group_.slices);
  launch.groups(part.tiles * group_.slices, per_head ? part.heads : 1, per_batch ? part.batches : 1);
}

}  // namespace heed::vulkan
