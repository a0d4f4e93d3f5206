#include <algorithm>
#include <vector>

#include "heed/backends/vulkan/attention_call.h"

// The masks of attention in the form its shaders read: a bit per entry.

namespace heed::vulkan {

namespace {

constexpr std::uint32_t threads = 256;

/// Bits of a part of the mask, or of its halves where the mask is larger than a binding may be.
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

/// From the blocks that each row of blocks sees to the blocks that see each column, rows ascending.
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

/// The masks that blocks use, one bit per entry.
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
/// to 2; transposed 3 to 5) and the bits of the masks (word 6), then these.
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
  // An axis along which the mask does not change needs its bits once.
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
