// Scaled dot-product attention that never holds the N x M matrix. shaders/attention.glsl describes the tiles,
// attention_fragments.h what runs on matrix hardware.
//
// Any width works: scores are summed over dk in pieces, and a result wider than a workgroup's registers is
// computed in slices, each of which recomputes the scores.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/attention_call.h"
#include "heed/backends/vulkan/attention_fragments.h"
#include "heed/base/error.h"

namespace heed::vulkan {

namespace {

// The most vec4s of a row of each result that an invocation holds in registers: with one result, and with
// two.
constexpr std::int64_t most_quads = 4, most_quads_of_two = 2;

void check_pattern(const AttentionArgs& args) {
  if (!args.pattern) return;
  const std::int64_t queries = args.query.size(2), keys = args.key.size(2), heads = args.query.size(1);
  check(args.pattern->queries == queries && args.pattern->keys == keys,
        "attention: the block pattern is for ", args.pattern->queries, " queries and ", args.pattern->keys,
        " keys, but there are ", queries, " and ", keys);
  check(args.pattern->heads == 1 || args.pattern->heads == heads, "attention: the block pattern has ",
        args.pattern->heads, " heads; expected 1 or ", heads);
}

/// Writes the largest score, the inverse of the sum and out . grad - log_sum_exp_grad of each query to `rows`
/// [B, H, N, 3].
void row_statistics(Gpu& gpu, const Tensor& out, const Tensor& grad, const Tensor& sums,
                    const Tensor& log_sum_exp_grad, const Tensor& rows) {
  const auto too_large = [&](const Tensor& x) {
    std::int64_t last = 0;
    for (int axis = 0; axis < x.rank(); ++axis) last += (x.size(axis) - 1) * x.stride(axis);
    return static_cast<std::uint64_t>(last + 1) * size_of(x.dtype()) + gpu.limits().offset_alignment >
           gpu.limits().max_range;
  };
  const int axis = rows.size(0) > 1 ? 0 : 1;
  if (rows.size(axis) > 1 && (too_large(out) || too_large(grad) || too_large(rows))) {
    const std::int64_t half = rows.size(axis) / 2, rest = rows.size(axis) - half;
    const auto part = [&](const Tensor& x, std::int64_t begin, std::int64_t count) {
      Shape shape = x.shape();
      shape[axis] = count;
      return x.view(shape, x.strides(), x.offset() + begin * x.stride(axis));
    };
    for (const auto& [begin, extent] : {std::pair{std::int64_t{0}, half}, std::pair{half, rest}}) {
      row_statistics(gpu, part(out, begin, extent), part(grad, begin, extent), part(sums, begin, extent),
                     log_sum_exp_grad.defined() ? part(log_sum_exp_grad, begin, extent) : log_sum_exp_grad,
                     part(rows, begin, extent));
    }
    return;
  }
  const std::uint32_t threads = std::min<std::uint32_t>(256, gpu.limits().max_invocations / 16 * 16);
  const std::int64_t count = out.size(0) * out.size(1) * out.size(2);
  const bool has_log_grad = log_sum_exp_grad.defined();
  Launch launch(gpu, shader_name("attention_rows", out.dtype()), {threads, threads, has_log_grad});
  launch.read(out).read(grad).read(sums).read(log_sum_exp_grad).write(rows);
  launch.push(count).push(out.size(2)).push(out.size(1)).push(out.size(3));
  for (const Tensor* x : {&out, &grad, has_log_grad ? &log_sum_exp_grad : &sums})
    for (int stride = 0; stride < 3; ++stride) launch.push(x->stride(stride));
  launch.work(0, static_cast<double>(2 * count * out.size(3)) * static_cast<double>(size_of(out.dtype())));
  launch.folded_groups(ceil_div(count, threads / 16));
}

/// The alignment, in elements, of the operands and results of a kernel; see attention_input().
std::int64_t step_of(const std::optional<FragmentKernel>& fragments) {
  return fragments ? 8 : 1;
}

std::string shader_by(const std::optional<FragmentKernel>& fragments, const char* shader) {
  if (!fragments) return shader;
  return concat_text(shader, fragments->kernel == TileKernel::cooperative ? "_cooperative" : "_emulated");
}

}  // namespace

void attention_forward(const AttentionArgs& args, const Tensor& out, const Tensor& sums) {
  attention_forward_by(trusted_fragments, args, out, sums);
}

void attention_forward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                          const Tensor& sums) {
  if (sums.count() == 0) return;
  check_pattern(args);
  const AttentionCall call(args);
  const double flops = 2 * call.area() * static_cast<double>(call.key_width + call.value_width);
  const auto fragments = choose(call, FragmentPass::forward);
  const AttentionOperand result = attention_output(call.gpu, out, step_of(fragments));
  AttentionPass(call, true,
                fragments ? fragments->group : square_group(call, true, call.value_width, most_quads))
      .output(result, true)
      .statistics(sums, true)
      .run(shader_by(fragments, "attention_forward").c_str(), flops);
  finish_output(result, out);
}

void attention_backward(const AttentionArgs& args, const Tensor& out, const Tensor& sums, const Tensor& grad,
                        const Tensor& log_sum_exp_grad, const Tensor& dquery, const Tensor& dkey,
                        const Tensor& dvalue, const Tensor& dbias) {
  attention_backward_by(trusted_fragments, args, out, sums, grad, log_sum_exp_grad, dquery, dkey, dvalue,
                        dbias);
}

void attention_backward_by(const FragmentChoice& choose, const AttentionArgs& args, const Tensor& out,
                           const Tensor& sums, const Tensor& grad, const Tensor& log_sum_exp_grad,
                           const Tensor& dquery, const Tensor& dkey, const Tensor& dvalue,
                           const Tensor& dbias) {
  check_pattern(args);
  const AttentionCall call(args);
  const auto of_queries = choose(call, FragmentPass::dquery), of_keys = choose(call, FragmentPass::dkey),
             of_bias = dbias.defined() ? choose(call, FragmentPass::dbias) : std::nullopt;
  const AttentionOperand slope =
      attention_input(call.gpu, grad, std::max({step_of(of_queries), step_of(of_keys), step_of(of_bias)}));
  const Tensor statistics =
      Tensor::empty({call.batch, call.heads, call.queries, 3}, DType::f32, grad.device());
  if (statistics.count() > 0)
    row_statistics(call.gpu, attention_input(call.gpu, out).tensor, slope.tensor, sums, log_sum_exp_grad,
                   statistics);
  // One kernel computes dkey and dvalue, so dkey needs memory even if it is not wanted.
  const AttentionOperand of_key = attention_output(
                             call.gpu,
                             dkey.defined()
                                 ? dkey
                                 : Tensor::empty(args.key.shape(), args.key.dtype(), args.key.device()),
                             step_of(of_keys)),
                         of_value = attention_output(call.gpu, dvalue, step_of(of_keys));
  const double area = call.area(), key_width = static_cast<double>(call.key_width),
               value_width = static_cast<double>(call.value_width);
  if (dquery.defined()) {
    const AttentionOperand of_query = attention_output(call.gpu, dquery, step_of(of_queries));
    AttentionPass(call, true,
                  of_queries ? of_queries->group : square_group(call, true, call.key_width, most_quads))
        .input(slope, true)
        .statistics(statistics, false)
        .output(of_query, true)
        .run(shader_by(of_queries, "attention_dquery").c_str(), 2 * area * (2 * key_width + value_width));
    finish_output(of_query, dquery);
  }
  AttentionPass(
      call, false,
      of_keys ? of_keys->group
              : square_group(call, false, std::max(call.key_width, call.value_width), most_quads_of_two))
      .input(slope, true)
      .statistics(statistics, false)
      .output(of_key, false)
      .output(of_value, false)
      .run(shader_by(of_keys, "attention_dkey").c_str(), 4 * area * (key_width + value_width));
  if (dbias.defined()) {
    const Tensor sums =
        dbias.dtype() == DType::f32 ? dbias : Tensor::empty(dbias.shape(), DType::f32, dbias.device());
    backend_of(sums).fill(0, sums);
    if (sums.count() > 0)
      AttentionPass(call, true, of_bias ? of_bias->group : square_group(call, true, 4, 1))
          .input(slope, true)
          .statistics(statistics, false)
          .bias_gradient(sums)
          .run(shader_by(of_bias, "attention_dbias").c_str(), 2 * area * (key_width + value_width));
    if (sums.storage() != dbias.storage()) backend_of(sums).copy(sums, dbias);
  }
  if (dkey.defined()) finish_output(of_key, dkey);
  finish_output(of_value, dvalue);
}

// Attention's masks in the form that its shaders read: one bit per entry.

namespace {

constexpr std::uint32_t threads = 256;

/// Packs a part of the mask into bits, in halves if that part is too large for a binding.
void pack_bits(Gpu& gpu, const Tensor& mask, const Tensor& bits) {
  std::int64_t last = 0, longest = 0;
  int widest = -1;
  for (int axis = 0; axis < 4; ++axis) {
    last += (mask.size(axis) - 1) * mask.stride(axis);
    if (axis < 3 && mask.size(axis) > 1 && mask.stride(axis) > longest) {
      longest = mask.stride(axis);
      widest = axis;
    }
  }
  const std::uint64_t bytes =
      static_cast<std::uint64_t>(last + 1) * size_of(mask.dtype()) + gpu.limits().offset_alignment;
  if (bytes > gpu.limits().max_range && widest >= 0) {
    const std::int64_t half = mask.size(widest) / 2;
    const auto part = [&](const Tensor& x, std::int64_t begin, std::int64_t count) {
      Shape shape = x.shape();
      shape[widest] = count;
      return x.view(shape, x.strides(), x.offset() + begin * x.stride(widest));
    };
    pack_bits(gpu, part(mask, 0, half), part(bits, 0, half));
    pack_bits(gpu, part(mask, half, mask.size(widest) - half), part(bits, half, mask.size(widest) - half));
    return;
  }
  const std::uint32_t size = std::min(threads, gpu.limits().max_invocations);
  Launch launch(gpu, "attention_mask", {size, size});
  launch.read(mask).write(bits).push(bits.count()).push(mask.size(1)).push(mask.size(2)).push(mask.size(3));
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

/// Appends a list and notes in word `slot` of the header where it begins.
void append(std::vector<std::int32_t>& words, std::size_t slot, const std::vector<std::int32_t>& list) {
  words[slot] = static_cast<std::int32_t>(words.size());
  words.insert(words.end(), list.begin(), list.end());
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

/// What shaders/attention.glsl reads: a header that says where offsets, columns and mask ids begin (words 0
/// to 2; those of the transposed lists 3 to 5) and where the masks' bits begin (word 6), followed by all of
/// these.
std::vector<std::int32_t> packed(const BlockPattern& pattern) {
  pattern.check_lists();
  const std::int64_t rows = ceil_div(pattern.queries, pattern.block),
                     columns = ceil_div(pattern.keys, pattern.block);
  const Lists lists{pattern.offsets.to_vector<std::int32_t>(), pattern.columns.to_vector<std::int32_t>(),
                    pattern.mask_ids.to_vector<std::int32_t>()};
  const Lists back = transposed(lists, pattern.heads, rows, columns);
  std::vector<std::int32_t> words(7, 0);
  append(words, 0, lists.offsets);
  append(words, 1, lists.columns);
  append(words, 2, lists.ids);
  append(words, 3, back.offsets);
  append(words, 4, back.columns);
  append(words, 5, back.ids);
  append(words, 6, packed_masks(pattern, lists.ids));
  return words;
}

}  // namespace

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
  return args.pattern->on_devices.get(device, [&] {
    const std::vector<std::int32_t> words = packed(*args.pattern);
    return Tensor::from(words, {static_cast<std::int64_t>(words.size())}, device);
  });
}

}  // namespace heed::vulkan
