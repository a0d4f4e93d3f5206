#pragma once

#include <array>

#include "heed/backends/vulkan/dispatch_limits.h"
#include "heed/backends/vulkan/kernels.h"

namespace heed::vulkan {

/// How one dispatch is laid over [outer, n, inner] where something runs along n (shaders/fold.glsl).
struct Fold {
  std::int64_t outer, n, inner;
  std::int64_t chunk, chunks;  ///< n is cut into `chunks` pieces of `chunk` rows; the last may have fewer
  std::uint32_t workgroup, width, height;  ///< invocations: in all, along inner, along n

  std::int64_t groups() const {
    return ceil_div(inner, width) * ceil_div(outer * chunks, workgroup / (width * height));
  }
  void push(Launch& launch) const { launch.push(outer).push(n).push(inner).push(chunk).push(chunks); }
};

/// A layout for reductions. Rows are cut into chunks, whose results are reduced again, where there
/// are too few outputs to occupy a device; never because of the device at hand, so that the result is
/// the same on all.
Fold reduction_fold(const Gpu& gpu, const Shape& shape);
/// The same with chunks of a given length.
Fold reduction_fold(const Gpu& gpu, const Shape& shape, std::int64_t chunk);

/// Some columns of [outer, n, inner], contiguous.
Tensor columns_of(const Tensor& x, Part part);
/// How many whole rows of [1, n, inner] one dispatch can bind; 0 where even the columns are too many for one.
std::int64_t rows_at_once(const Gpu& gpu, const Tensor& x);

/// What a reduction reads ([outer, n, inner]) and writes ([outer, inner]), contiguous. The first of the
/// inputs is there, others may be undefined.
using FoldTensors = std::array<Tensor, 2>;

/// f on each that is defined.
template <class F>
FoldTensors each_of(const FoldTensors& tensors, const F& f) {
  const auto if_defined = [&](const Tensor& t) { return t.defined() ? f(t) : Tensor(); };
  return {if_defined(tensors[0]), if_defined(tensors[1])};
}

/// Reduces along n with as many launches as the limits of the device and the chunks ask for. A kernel has
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
