#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/rows.h"
#include "heed/core/error.h"

namespace heed::vulkan {

namespace {

std::string out_of_range(std::int64_t classes, std::int32_t ignored) {
  return concat_text("cross_entropy: a target is not a class in [0, ", classes,
                     ") and not the ignored index ", ignored);
}

}  // namespace

void cross_entropy_forward(const Tensor& logits, const Tensor& targets, double smoothing,
                           std::int32_t ignored, const Tensor& loss, const Tensor& log_sum_exp) {
  if (logits.count() == 0) return;
  Gpu& gpu = gpu_of(logits);
  const std::int64_t classes = logits.size(-1), rows = logits.count() / classes;
  const RowShape shape = row_shape(gpu, classes);
  const auto element = static_cast<std::int64_t>(size_of(logits.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    Launch(gpu, shader_name("cross_entropy", logits.dtype()), {shape.workgroup, shape.lanes})
        .read(row_range(as_rows(logits), begin, end))
        .read(row_range(targets, begin, end))
        .write(row_range(loss, begin, end))
        .write(row_range(log_sum_exp, begin, end))
        .reports_errors(out_of_range(classes, ignored))
        .push(begin)
        .push(end - begin)
        .push(classes)
        .push(ignored)
        .push(smoothing)
        .work(0, static_cast<double>((end - begin) * classes * element))
        .folded_groups(ceil_div(end - begin, shape.rows_per_group()));
  };
  for_row_ranges(gpu, rows, classes * element, 1, shape.rows_per_group(), each);
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                            const Tensor& grad, double smoothing, std::int32_t ignored,
                            const Tensor& dlogits) {
  if (logits.count() == 0) return;
  Gpu& gpu = gpu_of(logits);
  const std::int64_t classes = logits.size(-1), rows = logits.count() / classes;
  const std::uint32_t workgroup = workgroup_size(gpu);
  const std::int64_t per_group = 4 * workgroup;  // elements
  const auto element = static_cast<std::int64_t>(size_of(logits.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = (end - begin) * classes;
    Launch(gpu, shader_name("cross_entropy_backward", logits.dtype()), {workgroup})
        .read(row_range(as_rows(logits), begin, end))
        .read(row_range(targets, begin, end))
        .read(row_range(log_sum_exp, begin, end))
        .read(row_range(grad, begin, end))
        .write(row_range(as_rows(dlogits), begin, end))
        .reports_errors(out_of_range(classes, ignored))
        .push(begin)
        .push(count)
        .push(classes)
        .push(ignored)
        .push(1 - smoothing)
        .push(smoothing / static_cast<double>(classes))
        .work(0, 2.0 * static_cast<double>(count * element))
        .folded_groups(ceil_div(count, per_group));
  };
  for_row_ranges(gpu, rows, classes * element, classes, per_group, each);
}

}  // namespace heed::vulkan
