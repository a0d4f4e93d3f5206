#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"

namespace heed::vulkan {

/// How the threads of a workgroup share rows of n elements (shaders/rows.glsl).
struct RowShape {
  std::uint32_t workgroup;
  std::uint32_t lanes;  ///< threads of one row; a power of two
  std::int64_t rows_per_group() const { return workgroup / lanes; }
  /// The most elements of a row that one thread handles.
  std::uint32_t held(std::int64_t n) const { return static_cast<std::uint32_t>(ceil_div(n, lanes)); }
};

inline RowShape row_shape(const Gpu& gpu, std::int64_t n) {
  const std::uint32_t workgroup = workgroup_size(gpu);
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(ceil_div(n, 4)));
  return {workgroup, static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, workgroup))};
}

/// The module of a shader that includes shaders/rows.glsl. It is the one whose threads exchange values within
/// subgroups if the device supports that, the workgroup is made of whole subgroups, and a row spans no more
/// subgroups than a subgroup has threads. Both modules give the same bits.
inline std::string_view row_shader(const Gpu& gpu, std::string_view base, DType dtype,
                                   const RowShape& shape) {
  const std::uint32_t exchanging = gpu.limits().exchanging;
  if (exchanging == 1 || shape.workgroup % exchanging != 0 || shape.lanes > exchanging * exchanging)
    return shader_name(base, dtype);
  return shader_name(std::string(base) + "_subgroups", dtype);
}

/// The most elements of `bytes` bytes each that a contiguous tensor can have and be bound at once, wherever
/// it begins.
inline std::int64_t most_elements(const Gpu& gpu, std::int64_t bytes) {
  return std::max<std::int64_t>(1, most_bytes(gpu) / std::max<std::int64_t>(1, bytes));
}

/// Calls body(begin, end) for ranges of rows that one launch can process. A row takes `row_bytes` in the
/// largest tensor and is `items` pieces of work, of which a workgroup does `items_per_group`.
template <class Body>
void for_row_ranges(const Gpu& gpu, std::int64_t rows, std::int64_t row_bytes, std::int64_t items,
                    std::int64_t items_per_group, Body body) {
  const std::int64_t by_groups =
      std::max<std::int64_t>(1, most_groups(gpu) * items_per_group / std::max<std::int64_t>(1, items));
  const std::int64_t most = std::min(most_elements(gpu, row_bytes), by_groups);
  for (std::int64_t begin = 0; begin < rows; begin += most) body(begin, std::min(rows, begin + most));
}

/// Entries [begin, end) of the first axis; an undefined tensor stays undefined.
inline Tensor row_range(const Tensor& x, std::int64_t begin, std::int64_t end) {
  return x.defined() ? narrowed(x, 0, {begin, end - begin}) : x;
}

/// What to bind for an output that is left out: memory that the launch writes anyway. A placeholder that
/// several launches share would look like a hazard between them.
inline const Tensor& either(const Tensor& output, const Tensor& other) {
  return output.defined() ? output : other;
}

/// A contiguous tensor as [rows, n], n its last extent.
inline Tensor as_rows(const Tensor& x) {
  return x.view({x.count() / x.size(-1), x.size(-1)});
}

}  // namespace heed::vulkan
