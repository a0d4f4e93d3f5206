#include <algorithm>
#include <bit>
#include <cstdint>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/rows.h"
#include "heed/base/error.h"
#include "heed/core/backend.h"

namespace heed::vulkan {

/// How a device with `memory_bytes` of memory holds logits of `element` bytes. A chunk has as many rows as
/// fit 512 MiB and at least 2,048, so that its products fill a large GPU and rarely reread the weight, but
/// takes no more than an eighth of the memory; all chunks have nearly the same size. Rows begin at multiples
/// of eight elements, so that a vocabulary of odd size is read in vectors too.
LogitChunks plan_logits(std::uint64_t memory_bytes, std::int64_t element, std::int64_t rows,
                        std::int64_t classes);

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
  const std::int64_t classes = logits.size(1), rows = logits.size(0), pitch = logits.stride(0);
  const RowShape shape = row_shape(gpu, classes);
  const auto element = static_cast<std::int64_t>(size_of(logits.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    Launch(gpu, row_shader(gpu, "cross_entropy", logits.dtype(), shape), {shape.workgroup, shape.lanes})
        .read(row_range(logits, begin, end))
        .read(row_range(targets, begin, end))
        .write(row_range(loss, begin, end))
        .write(row_range(log_sum_exp, begin, end))
        .reports_errors(out_of_range(classes, ignored))
        .push(begin)
        .push(end - begin)
        .push(classes)
        .push(pitch)
        .push(ignored)
        .push(smoothing)
        .work(0, static_cast<double>((end - begin) * classes * element))
        .folded_groups(ceil_div(end - begin, shape.rows_per_group()));
  };
  for_row_ranges(gpu, rows, pitch * element, 1, shape.rows_per_group(), each);
}

void cross_entropy_backward(const Tensor& logits, const Tensor& targets, const Tensor& log_sum_exp,
                            const Tensor& grad, double smoothing, std::int32_t ignored,
                            const Tensor& dlogits) {
  if (logits.count() == 0) return;
  Gpu& gpu = gpu_of(logits);
  const std::int64_t classes = logits.size(1), rows = logits.size(0);
  // A workgroup handles a piece of one row.
  const auto fours = std::bit_ceil(static_cast<std::uint64_t>(ceil_div(classes, 4)));
  const std::uint32_t workgroup =
      workgroup_size(gpu, static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fours, 32, 256)));
  const std::int64_t pieces = ceil_div(classes, 4 * workgroup);  // of a row
  const auto element = static_cast<std::int64_t>(size_of(logits.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    Launch(gpu, shader_name("cross_entropy_backward", logits.dtype()), {workgroup})
        .read(row_range(logits, begin, end))
        .read(row_range(targets, begin, end))
        .read(row_range(log_sum_exp, begin, end))
        .read(row_range(grad, begin, end))
        .write(row_range(dlogits, begin, end))
        .reports_errors(out_of_range(classes, ignored))
        .push(begin)
        .push(end - begin)
        .push(classes)
        .push(pieces)
        .push(logits.stride(0))
        .push(dlogits.stride(0))
        .push(ignored)
        .push(1 - smoothing)
        .push(smoothing / static_cast<double>(classes))
        .work(0, 2.0 * static_cast<double>((end - begin) * classes * element))
        .folded_groups((end - begin) * pieces);
  };
  for_row_ranges(gpu, rows, std::max(logits.stride(0), dlogits.stride(0)) * element, pieces, 1, each);
}

LogitChunks plan_logits(std::uint64_t memory_bytes, std::int64_t element, std::int64_t rows,
                        std::int64_t classes) {
  constexpr std::int64_t fewest = 2048, enough = std::int64_t{512} << 20, tile = 128;
  const std::int64_t pitch = ceil_div(classes, 8) * 8;
  const std::int64_t row = pitch * element, room = static_cast<std::int64_t>(memory_bytes / 8);
  const std::int64_t at_once =
      std::max<std::int64_t>(1, std::min(std::max(enough, fewest * row), room) / row);
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(rows, at_once));
  const std::int64_t even = ceil_div(ceil_div(rows, chunks), tile) * tile;
  return {std::clamp<std::int64_t>(even, 1, at_once), pitch};
}

LogitChunks logit_chunks(Device device, DType dtype, std::int64_t rows, std::int64_t classes) {
  return plan_logits(gpu(device.index).memory_bytes(), static_cast<std::int64_t>(size_of(dtype)), rows,
                     classes);
}

}  // namespace heed::vulkan
