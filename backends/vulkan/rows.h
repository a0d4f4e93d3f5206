#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"

namespace heed::vulkan {

/// The usual number of threads in a workgroup: a power of two.
inline std::uint32_t workgroup_size(const Gpu& gpu, std::uint32_t wanted = 256) {
  return std::bit_floor(std::min(wanted, gpu.limits().max_invocations));
}

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
  const auto room = static_cast<std::int64_t>(gpu.limits().max_range - gpu.limits().offset_alignment);
  return std::max<std::int64_t>(1, room / std::max<std::int64_t>(1, bytes));
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
  if (!x.defined()) return x;
  Shape shape = x.shape();
  shape[0] = end - begin;
  return x.view(shape, x.strides(), x.offset() + begin * x.stride(0));
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

/// How one dispatch covers [outer, n, inner] for a computation along n (shaders/fold.glsl).
struct Fold {
  std::int64_t outer, n, inner;
  std::int64_t chunk, chunks;  ///< n is cut into `chunks` pieces of `chunk` rows; the last may have fewer
  std::uint32_t workgroup, width, height;  ///< invocations: in all, along inner, along n

  std::int64_t groups() const {
    return ceil_div(inner, width) * ceil_div(outer * chunks, workgroup / (width * height));
  }
  void push(Launch& launch) const { launch.push(outer).push(n).push(inner).push(chunk).push(chunks); }
};

/// A layout for reductions. If there are too few outputs to occupy a GPU, rows are cut into chunks, whose
/// results are reduced again. The choice does not depend on the device at hand, so that the result is the
/// same on all.
Fold reduction_fold(const Gpu& gpu, const Shape& shape);
/// The same with chunks of a given length.
Fold reduction_fold(const Gpu& gpu, const Shape& shape, std::int64_t chunk);

/// A contiguous copy of some columns of [outer, n, inner].
Tensor columns_of(const Tensor& x, Part part);
/// How many whole rows of [1, n, inner] one dispatch can bind; 0 if even the columns are too many for one.
std::int64_t rows_at_once(const Gpu& gpu, const Tensor& x);

/// The contiguous tensors that a reduction reads ([outer, n, inner]) or writes ([outer, inner]). The first
/// input is always defined; the others may not be.
using FoldTensors = std::array<Tensor, 2>;

/// f of each tensor that is defined.
template <class F>
FoldTensors each_of(const FoldTensors& tensors, const F& f) {
  const auto if_defined = [&](const Tensor& t) { return t.defined() ? f(t) : Tensor(); };
  return {if_defined(tensors[0]), if_defined(tensors[1])};
}

/// Reduces along n with as many launches as the device's limits and the chunks require. A kernel has
///   FoldTensors partials(shape)  allocates results that are to be reduced further, [outer, n, inner];
///   void launch(gpu, fold, in, out, first_row)  row r of `in` is row first_row + r of the whole.
template <class Kernel>
void fold_rows(Gpu& gpu, const Kernel& kernel, const FoldTensors& in, const FoldTensors& out,
               std::int64_t first_row = 0) {
  const Tensor& x = in[0];
  const std::int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const Fold fold = reduction_fold(gpu, x.shape());
  const auto reduce_partials = [&](const FoldTensors& partials) { fold_rows(gpu, kernel, partials, out); };
  if (range_holds(gpu, x.count(), DType::f32) && range_holds(gpu, outer * inner, DType::f32) &&
      fold.groups() <= most_groups(gpu)) {
    if (fold.chunks == 1) return kernel.launch(gpu, fold, in, out, first_row);
    const FoldTensors partials = kernel.partials({outer, fold.chunks, inner});
    kernel.launch(gpu, fold, in, partials, first_row);
    return reduce_partials(partials);
  }
  if (outer > 1) {
    for (const Part part : halves(outer)) {
      const auto cut = [part](const Tensor& t) { return narrowed(t, 0, part); };
      fold_rows(gpu, kernel, each_of(in, cut), each_of(out, cut), first_row);
    }
    return;
  }
  const std::int64_t longest = std::min(rows_at_once(gpu, x), ceil_div(n, 2));
  if (longest < 2) {
    for (const Part part : halves(inner)) {
      const auto columns = [part](const Tensor& t) { return columns_of(t, part); };
      const auto cut = [part](const Tensor& t) { return narrowed(t, 1, part); };
      fold_rows(gpu, kernel, each_of(in, columns), each_of(out, cut), first_row);
    }
    return;
  }
  const FoldTensors partials = kernel.partials({1, ceil_div(n, longest), inner});
  for (std::int64_t begin = 0; begin < n; begin += longest) {
    const std::int64_t count = std::min(longest, n - begin);
    const auto rows = [=](const Tensor& t) { return narrowed(t, 1, {begin, count}); };
    const auto result = [=](const Tensor& t) {
      return t.view({1, inner}, {inner, 1}, t.offset() + begin / longest * inner);
    };
    fold_rows(gpu, kernel, each_of(in, rows), each_of(partials, result), first_row + begin);
  }
  reduce_partials(partials);
}

/// totals[outer, chunks, inner] = the sum of each chunk of x, in f32 or i32. One launch.
void sum_chunks(Gpu& gpu, const Tensor& x, const Fold& fold, const Tensor& totals);

}  // namespace heed::vulkan
