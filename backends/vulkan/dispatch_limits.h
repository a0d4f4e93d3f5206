#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "heed/backends/vulkan/launch.h"

// Cutting tensors into what one dispatch can bind and cover.

namespace heed::vulkan {

/// The indices [first, first + count) of an axis.
struct Part {
  std::int64_t first, count;
};

inline std::array<Part, 2> halves(std::int64_t extent) {
  return {Part{0, extent / 2}, Part{extent / 2, extent - extent / 2}};
}

inline Tensor narrowed(const Tensor& x, int axis, Part part) {
  Shape shape = x.shape();
  shape[axis] = part.count;
  return x.view(shape, x.strides(), x.offset() + part.first * x.strides()[axis]);
}

/// How many elements of memory a view reaches over.
inline std::int64_t reach_of(const Tensor& x) {
  std::int64_t last = 0;
  for (int i = 0; i < x.rank(); ++i) last += (x.shape()[i] - 1) * x.strides()[i];
  return last + 1;
}

/// Bytes that a binding can hold wherever its tensor begins.
inline std::int64_t most_bytes(const Gpu& gpu) {
  return static_cast<std::int64_t>(gpu.limits().max_range) - gpu.limits().offset_alignment;
}

/// Whether one binding can hold `count` elements.
inline bool range_holds(const Gpu& gpu, std::int64_t count, DType dtype) {
  return count * static_cast<std::int64_t>(size_of(dtype)) <= most_bytes(gpu);
}

/// Workgroups of one Launch::folded_groups.
inline std::int64_t most_groups(const Gpu& gpu) {
  const std::int64_t per_axis = gpu.limits().max_groups;
  return std::min<std::int64_t>(per_axis * per_axis, 1 << 30);
}

/// The largest power of two up to `wanted` that the device takes as a workgroup.
inline std::uint32_t group_size(const Gpu& gpu, std::uint32_t wanted) {
  return std::bit_floor(std::min(wanted, gpu.limits().max_invocations));
}

}  // namespace heed::vulkan
