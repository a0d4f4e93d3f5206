#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "heed/backends/kernels.h"
#include "heed/backends/vulkan/launch.h"
#include "heed/base/error.h"

// Kernels of rows: softmax, cross entropy, layer norm, rotary positions (shaders/rows.glsl).

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
        .read(from, row_range(mask, begin, end))
        .write(row_range(as_rows(out), begin, end))
        .push(end - begin, n, mask_stride)
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
        .read(row_range(as_rows(y), begin, end), row_range(as_rows(grad), begin, end))
        .write(row_range(as_rows(dx), begin, end))
        .push(end - begin, n)
        .work(0, 3.0 * static_cast<double>((end - begin) * n * element))
        .folded_groups(ceil_div(end - begin, shape.rows_per_group()));
  };
  for_row_ranges(gpu, rows, n * element, 1, shape.rows_per_group(), each);
}

/// Plans the chunks of logits of `element` bytes on a device with `memory_bytes` of memory. A chunk
/// has as many rows as fit 512 MiB and at least 2,048, so that its products fill a large GPU and
/// rarely reread the weight, but takes no more than an eighth of the memory; all chunks have nearly
/// the same size. Rows begin at multiples of eight elements, so that a vocabulary of odd size is
/// read in vectors too.
LogitChunks plan_logits(std::uint64_t memory_bytes, std::int64_t element, std::int64_t rows,
                        std::int64_t classes);

static std::string out_of_range(std::int64_t classes, std::int32_t ignored) {
  return concat_text("cross_entropy: a target is not a class in [0, ", classes,
                     ") and not the ignored index ", ignored);
}

void cross_entropy_forward(const Tensor& logits, const Tensor& targets, double smoothing,
                           std::int32_t ignored, const Tensor& loss, const Tensor& log_sum_exp) {
  if (logits.count() == 0) return;
  Gpu& gpu = gpu_of(logits);
  const std::int64_t classes = logits.size(1), rows = logits.size(0), pitch = logits.stride(0);
  const RowShape shape = row_shape(gpu, classes);
  const auto element = static_cast<std::int64_t>(size_of(logits.dtype()));
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    Launch(gpu, row_shader(gpu, "cross_entropy", logits.dtype(), shape), {shape.workgroup, shape.lanes})
        .read(row_range(logits, begin, end), row_range(targets, begin, end))
        .write(row_range(loss, begin, end), row_range(log_sum_exp, begin, end))
        .reports_errors(out_of_range(classes, ignored))
        .push(begin, end - begin, classes, pitch, ignored, smoothing)
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
        .read(row_range(logits, begin, end), row_range(targets, begin, end),
              row_range(log_sum_exp, begin, end), row_range(grad, begin, end))
        .write(row_range(dlogits, begin, end))
        .reports_errors(out_of_range(classes, ignored))
        .push(begin, end - begin, classes, pieces, logits.stride(0), dlogits.stride(0), ignored,
              1 - smoothing, smoothing / static_cast<double>(classes))
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
  return plan_logits(gpu(device.index).described().memory_bytes, static_cast<std::int64_t>(size_of(dtype)),
                     rows, classes);
}

namespace {

/// The inputs that add_norm adds up; `added` is undefined for layer_norm.
struct AddedRows {
  Tensor added, residual;
  double p = 0;
  RandomKey key;
};

/// Pushes what shaders/layer_norm.comp needs, for rows that begin at element `first` of the stream.
void push_dropout(Launch& launch, double p, const RandomKey& key, std::int64_t first) {
  const auto block = static_cast<std::uint64_t>(first / 4);
  launch.push(first % 4, static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32));
  launch.push(static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32));
  launch.push(key.step, key.op);
  launch.push(static_cast<std::uint32_t>(std::ceil(p * 0x1p24)), 1 / (1 - p));
}

void normalise(const AddedRows& of, const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
               const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  if (x.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t n = x.size(-1), rows = x.count() / n;
  const RowShape shape = row_shape(gpu, n);
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const bool adds = of.added.defined();
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    const Tensor row_inverse = row_range(inverse_deviation, begin, end),
                 x_rows = row_range(as_rows(x), begin, end);
    Launch launch(gpu, row_shader(gpu, adds ? "add_norm" : "layer_norm", x.dtype(), shape),
                  {shape.workgroup, shape.lanes, weight.defined(), bias.defined(), shape.held(n),
                   mean.defined(), 0, of.p > 0});
    adds ? launch.write(x_rows) : launch.read(x_rows);
    launch.read(weight, bias)
        .write(row_range(as_rows(out), begin, end), either(row_range(mean, begin, end), row_inverse),
               row_inverse);
    if (adds)
      launch.read(row_range(as_rows(of.added), begin, end), row_range(as_rows(of.residual), begin, end));
    launch.push(end - begin, n, epsilon);
    if (adds) push_dropout(launch, of.p, of.key, begin * n);
    launch.work(0, (adds ? 4.0 : 2.0) * static_cast<double>((end - begin) * n * element));
    launch.folded_groups(ceil_div(end - begin, shape.rows_per_group()));
  };
  for_row_ranges(gpu, rows, n * element, 1, shape.rows_per_group(), each);
}

/// Returns how many rows the threads of a row take one after another. Fewer rows mean more partial
/// sums to write and to add up, which must fit one binding; more rows mean less parallelism. The
/// number depends only on the shape and the limits, and so do the bits of the result.
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
      .write(either(dweight, dbias), either(dbias, dweight))
      .push(sums.size(0), n)
      .work(0, 4.0 * static_cast<double>(sums.count()))
      .folded_groups(2 * ceil_div(n, columns_per_group));
}

/// The gradients of add_norm's inputs; `sum` is false for layer_norm.
struct AddedGradients {
  bool sum = false;
  Tensor sum_grad, dadded;
  double p = 0;
  RandomKey key;
};

void normalise_backward(const AddedGradients& of, const Tensor& x, const Tensor& weight, const Tensor& mean,
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
  const double tensors = 3.0 + of.sum_grad.defined() + of.dadded.defined();
  const Tensor sums =
      with_sums ? Tensor::empty({ceil_div(rows, per_thread), 2, n}, DType::f32, x.device()) : Tensor();
  const auto each = [&](std::int64_t first, std::int64_t last) {  // blocks of rows
    const std::int64_t begin = first * per_thread, end = std::min(rows, last * per_thread);
    const auto part = [&](const Tensor& of_all) {
      return of_all.defined() ? row_range(as_rows(of_all), begin, end) : of_all;
    };
    const Tensor dx_rows = part(dx);
    Launch launch(gpu,
                  row_shader(gpu, of.sum ? "add_norm_backward" : "layer_norm_backward", x.dtype(), shape),
                  {shape.workgroup, shape.lanes, weight.defined(), with_sums, shape.held(n), mean.defined(),
                   of.sum_grad.defined(), of.p > 0});
    launch
        .read(part(x), weight, row_range(mean, begin, end), row_range(inverse_deviation, begin, end),
              part(grad))
        .write(dx_rows, either(row_range(sums, first, last), dx_rows));
    if (of.sum) launch.read(part(of.sum_grad)).write(either(part(of.dadded), dx_rows));
    launch.push(end - begin, n, per_thread);
    if (of.sum) push_dropout(launch, of.p, of.key, begin * n);
    launch.work(0, tensors * static_cast<double>((end - begin) * n * element));
    launch.folded_groups(ceil_div(last - first, shape.rows_per_group()));
  };
  for_row_ranges(gpu, ceil_div(rows, per_thread), per_thread * n * element, 1, shape.rows_per_group(), each);
  if (with_sums) add_blocks(gpu, sums, dweight, dbias, x.dtype());
}

}  // namespace

void layer_norm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                        const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  normalise({}, x, weight, bias, epsilon, out, mean, inverse_deviation);
}

void add_norm_forward(const Tensor& x, const Tensor& residual, double p, const RandomKey& key,
                      const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& sum,
                      const Tensor& out, const Tensor& mean, const Tensor& inverse_deviation) {
  normalise({x, residual, p, key}, sum, weight, bias, epsilon, out, mean, inverse_deviation);
}

void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                         const Tensor& inverse_deviation, const Tensor& grad, const Tensor& dx,
                         const Tensor& dweight, const Tensor& dbias) {
  normalise_backward({}, x, weight, mean, inverse_deviation, grad, dx, dweight, dbias);
}

void add_norm_backward(const Tensor& sum, const Tensor& weight, const Tensor& mean,
                       const Tensor& inverse_deviation, const Tensor& grad, const Tensor& sum_grad, double p,
                       const RandomKey& key, const Tensor& dsum, const Tensor& dx, const Tensor& dweight,
                       const Tensor& dbias) {
  normalise_backward({true, sum_grad, dx, p, key}, sum, weight, mean, inverse_deviation, grad, dsum, dweight,
                     dbias);
}

/// `direction` is 1, or -1 to rotate back.
static void turn(const Tensor& x, const Tensor& cosines, const Tensor& sines, double direction,
                 const Tensor& out) {
  if (x.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t positions = x.size(1), heads = x.size(2), width = heads * x.size(3), pairs = width / 2;
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const std::uint32_t workgroup = workgroup_size(gpu);
  const Shape rows{x.size(0) * positions, width};
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    Launch(gpu, shader_name("rotary", x.dtype()), {workgroup})
        .read(row_range(x.view(rows), begin, end), cosines, sines)
        .write(row_range(out.view(rows), begin, end))
        .push((end - begin) * pairs, begin % positions, positions, heads, x.size(3) / 2, direction)
        .work(0, 2.0 * static_cast<double>((end - begin) * width * element))
        .folded_groups(ceil_div((end - begin) * pairs, workgroup));
  };
  for_row_ranges(gpu, rows[0], width * element, pairs, workgroup, each);
}

void rotary_forward(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Tensor& out) {
  turn(x, cosines, sines, 1, out);
}

void rotary_backward(const Tensor& grad, const Tensor& cosines, const Tensor& sines, const Tensor& dx) {
  turn(grad, cosines, sines, -1, dx);
}

}  // namespace heed::vulkan
