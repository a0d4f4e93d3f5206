#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/rows.h"

namespace heed::vulkan {

void layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                        const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  if (x.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t n = x.size(-1), rows = x.count() / n;
  const RowShape shape = row_shape(gpu, n);
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    const Tensor row_inverse = row_range(inverse_deviation, begin, end);
    Launch(gpu, shader_name("layer_norm", x.dtype()),
           {shape.workgroup, shape.lanes, weight.defined(), bias.defined(), shape.held(n), mean.defined()})
        .read(row_range(as_rows(x), begin, end))
        .read(weight)
        .read(bias)
        .write(row_range(as_rows(out), begin, end))
        .write(either(row_range(mean, begin, end), row_inverse))
        .write(row_inverse)
        .push(end - begin)
        .push(n)
        .push(epsilon)
        .work(0, 2.0 * static_cast<double>((end - begin) * n * element))
        .folded_groups(ceil_div(end - begin, shape.rows_per_group()));
  };
  for_row_ranges(gpu, rows, n * element, 1, shape.rows_per_group(), each);
}

namespace {

/// Rows that a row of threads takes one after another. The fewer, the more partial sums there are to write
/// and to add up, and those must fit one binding; the more, the less there is to do at once. It follows from
/// the shape and the limits alone, and so do the bits.
std::int64_t rows_per_thread(const Gpu& gpu, std::int64_t rows, std::int64_t n, const RowShape& shape) {
  const std::int64_t most_blocks = most_elements(gpu, 2 * 4 * n);
  return std::max(ceil_div(rows, most_blocks),
                  std::clamp<std::int64_t>(rows / (512 * shape.rows_per_group()), 4, 32));
}

/// dweight and dbias from the partial sums [blocks, 2, n].
void add_blocks(Gpu& gpu, const Tensor& sums, const Tensor& dweight, const Tensor& dbias, DType dtype) {
  const std::int64_t columns_per_group = 8, n = sums.size(2);
  Launch(gpu, shader_name("layer_norm_sums", dtype), {dweight.defined(), dbias.defined()})
      .read(sums)
      .write(either(dweight, dbias))
      .write(either(dbias, dweight))
      .push(sums.size(0))
      .push(n)
      .work(0, 4.0 * static_cast<double>(sums.count()))
      .folded_groups(2 * ceil_div(n, columns_per_group));
}

}  // namespace

void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                         const Tensor& dweight, const Tensor& dbias) {
  Gpu& gpu = gpu_of(x);
  const std::int64_t n = x.size(-1);
  const bool with_sums = dweight.defined() || dbias.defined();
  if (x.count() == 0) {
    if (with_sums)
      add_blocks(gpu, Tensor::empty({0, 2, n}, DType::f32, x.device()), dweight, dbias, x.dtype());
    return;
  }
  const std::int64_t rows = x.count() / n;
  const RowShape shape = row_shape(gpu, n);
  const std::int64_t per_thread = rows_per_thread(gpu, rows, n, shape);
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const Tensor sums =
      with_sums ? Tensor::empty({ceil_div(rows, per_thread), 2, n}, DType::f32, x.device()) : Tensor();
  const auto each = [&](std::int64_t first, std::int64_t last) {  // blocks of rows
    const std::int64_t begin = first * per_thread, end = std::min(rows, last * per_thread);
    const Tensor dx_rows = row_range(as_rows(dx), begin, end);
    Launch(gpu, shader_name("layer_norm_backward", x.dtype()),
           {shape.workgroup, shape.lanes, weight.defined(), with_sums, shape.held(n), mean.defined()})
        .read(row_range(as_rows(x), begin, end))
        .read(weight)
        .read(row_range(mean, begin, end))
        .read(row_range(inverse_deviation, begin, end))
        .read(row_range(as_rows(grad), begin, end))
        .write(dx_rows)
        .write(either(row_range(sums, first, last), dx_rows))
        .push(end - begin)
        .push(n)
        .push(per_thread)
        .work(0, 3.0 * static_cast<double>((end - begin) * n * element))
        .folded_groups(ceil_div(last - first, shape.rows_per_group()));
  };
  for_row_ranges(gpu, ceil_div(rows, per_thread), per_thread * n * element, 1, shape.rows_per_group(), each);
  if (with_sums) add_blocks(gpu, sums, dweight, dbias, x.dtype());
}

}  // namespace heed::vulkan
