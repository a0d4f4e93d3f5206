#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/rows.h"

namespace heed::vulkan {

void softmax_forward(const Tensor& x, const Tensor& mask, bool log, const Tensor& out) {
  if (x.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t n = x.size(-1), rows = x.count() / n;
  const RowShape shape = row_shape(gpu, n);
  const std::uint32_t mask_kind = !mask.defined() ? 0 : mask.stride(1) == 0 && n > 1 ? 2 : 1;
  const std::int64_t mask_stride = mask.defined() ? mask.stride(0) : 0;
  const std::int64_t mask_extent = mask_kind == 0   ? 0
                                   : mask_kind == 1 ? std::max(n, mask_stride)
                                                    : mask_stride;
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    const Tensor from = row_range(as_rows(x), begin, end);
    Launch(gpu, row_shader(gpu, "softmax", x.dtype(), shape), {shape.workgroup, shape.lanes, log, mask_kind})
        .read(from)
        .read(row_range(mask, begin, end))
        .write(row_range(as_rows(out), begin, end))
        .push(end - begin)
        .push(n)
        .push(mask_stride)
        .work(0, 2.0 * static_cast<double>(from.count() * element))
        .folded_groups(ceil_div(end - begin, shape.rows_per_group()));
  };
  for_row_ranges(gpu, rows, std::max(n * element, 4 * mask_extent), 1, shape.rows_per_group(), each);
}

void softmax_backward(const Tensor& y, const Tensor& grad, bool log, const Tensor& dx) {
  if (y.count() == 0) return;
  Gpu& gpu = gpu_of(y);
  const std::int64_t n = y.size(-1), rows = y.count() / n;
  const RowShape shape = row_shape(gpu, n);
  const auto element = static_cast<std::int64_t>(size_of(y.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    Launch(gpu, row_shader(gpu, "softmax_backward", y.dtype(), shape), {shape.workgroup, shape.lanes, log})
        .read(row_range(as_rows(y), begin, end))
        .read(row_range(as_rows(grad), begin, end))
        .write(row_range(as_rows(dx), begin, end))
        .push(end - begin)
        .push(n)
        .work(0, 3.0 * static_cast<double>((end - begin) * n * element))
        .folded_groups(ceil_div(end - begin, shape.rows_per_group()));
  };
  for_row_ranges(gpu, rows, n * element, 1, shape.rows_per_group(), each);
}

}  // namespace heed::vulkan
