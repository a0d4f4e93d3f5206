#include <bit>

#include "heed/backends/vulkan/rows.h"

namespace heed::vulkan {
namespace {

/// The type of results that are reduced further.
DType wide(DType dtype) {
  return dtype == DType::i32 ? DType::i32 : DType::f32;
}

void launch_reduce(Gpu& gpu, ReduceOp op, const Fold& fold, const Tensor& x, const Tensor& out) {
  const bool same = x.dtype() == out.dtype();
  const bool from_wide = !same && x.dtype() == wide(x.dtype());
  const std::string_view shader = same        ? shader_name("reduce", x.dtype())
                                  : from_wide ? shader_name("reduce_final", out.dtype())
                                              : shader_name("reduce_partial", x.dtype());
  Launch launch(gpu, shader, {fold.workgroup, fold.width, fold.height, static_cast<std::uint32_t>(op)});
  launch.write(out).read(x);
  fold.push(launch);
  launch.work(0, static_cast<double>(x.count()) * static_cast<double>(size_of(x.dtype())));
  launch.folded_groups(fold.groups());
}

struct Reduction {
  ReduceOp op;
  DType partial_type;
  Device device;

  FoldTensors partials(const Shape& shape) const {
    return {Tensor::empty(shape, partial_type, device), Tensor()};
  }
  void launch(Gpu& gpu, const Fold& fold, const FoldTensors& in, const FoldTensors& out, std::int64_t) const {
    launch_reduce(gpu, op, fold, in[0], out[0]);
  }
};

}  // namespace

void reduce(ReduceOp op, const Tensor& x, const Tensor& out) {
  if (out.count() == 0) return;
  fold_rows(gpu_of(x), Reduction{op, wide(x.dtype()), x.device()}, {x, Tensor()}, {out, Tensor()});
}

void sum_chunks(Gpu& gpu, const Tensor& x, const Fold& fold, const Tensor& totals) {
  launch_reduce(gpu, ReduceOp::sum, fold, x, totals);
}

namespace {

/// Its tensors are pairs: elements and the rows that they come from. The rows of the first input are
/// undefined; the elements of the final result are not wanted.
struct LargestRow {
  DType dtype;
  Device device;

  FoldTensors partials(const Shape& shape) const {
    return {Tensor::empty(shape, dtype, device), Tensor::empty(shape, DType::i32, device)};
  }
  void launch(Gpu& gpu, const Fold& fold, const FoldTensors& in, const FoldTensors& out,
              std::int64_t first_row) const {
    const auto& [x, rows] = in;
    const auto& [values, result] = out;
    Launch launch(
        gpu, shader_name("argmax", dtype),
        {fold.workgroup, fold.width, fold.height, rows.defined() ? 1u : 0u, values.defined() ? 1u : 0u});
    // The binding for the values must not be empty, and it counts as written since the shader may write.
    launch.write(result).write(values.defined() ? values : result).read(x).read(rows);
    fold.push(launch);
    launch.push(first_row);
    launch.work(0, static_cast<double>(x.count()) * static_cast<double>(size_of(dtype)));
    launch.folded_groups(fold.groups());
  }
};

}  // namespace

void argmax(const Tensor& x, const Tensor& out) {
  if (out.count() == 0) return;
  fold_rows(gpu_of(x), LargestRow{x.dtype(), x.device()}, {x, Tensor()}, {Tensor(), out});
}

namespace {

/// Tensors with a wide inner axis are scanned by one invocation per column, narrow ones by a workgroup along
/// n. A long n is cut into chunks, for occupancy and to limit the rounding errors of a long chain.
Fold scan_fold(const Gpu& gpu, const Shape& shape) {
  const std::int64_t outer = shape[0], n = shape[1], inner = shape[2];
  const auto power_above = [](std::int64_t x) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(x)));
  };
  const std::int64_t size = group_size(gpu, 256);
  const std::int64_t width = std::min(power_above(inner), size);
  const std::int64_t height = inner >= 32 ? 1 : std::min(power_above(n), size / width);
  const std::int64_t longest = height == 1 ? 128 : 8 * height;
  const std::int64_t chunk = n > 2 * longest ? longest : n;
  return {.outer = outer,
          .n = n,
          .inner = inner,
          .chunk = chunk,
          .chunks = ceil_div(n, chunk),
          .workgroup = static_cast<std::uint32_t>(size),
          .width = static_cast<std::uint32_t>(width),
          .height = static_cast<std::uint32_t>(height)};
}

void launch_scan(Gpu& gpu, const Fold& fold, const Tensor& x, bool reverse, const Tensor& totals,
                 const Tensor& out) {
  Launch launch(gpu, shader_name("cumulative_sum", x.dtype()),
                {fold.workgroup, fold.width, fold.height, reverse ? 1u : 0u, totals.defined() ? 1u : 0u});
  launch.write(out).read(x).read(totals);
  fold.push(launch);
  launch.work(0, 2.0 * static_cast<double>(x.count()) * static_cast<double>(size_of(x.dtype())));
  launch.folded_groups(fold.groups());
}

/// out += row, [1, n, inner] and [1, 1, inner].
void add_row(const Tensor& row, const Tensor& out) {
  binary(BinaryOp::add, out, row.view(out.shape(), {0, 0, 1}, row.offset()), out);
}

/// Scans [1, n, inner] whose rows do not fit one dispatch: each piece continues from the last sum of the one
/// before.
void scan_pieces(const Tensor& x, bool reverse, std::int64_t longest, const Tensor& out) {
  const std::int64_t n = x.size(1);
  Tensor previous;
  for (std::int64_t done = 0; done < n; done += longest) {
    const std::int64_t count = std::min(longest, n - done);
    const std::int64_t begin = reverse ? n - done - count : done;
    const Tensor piece = narrowed(out, 1, {begin, count});
    cumulative_sum(narrowed(x, 1, {begin, count}), reverse, piece);
    if (previous.defined()) add_row(previous, piece);
    previous = narrowed(piece, 1, {reverse ? 0 : count - 1, 1});
  }
}

}  // namespace

void cumulative_sum(const Tensor& x, bool reverse, const Tensor& out) {
  if (x.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t outer = x.size(0), inner = x.size(2);
  const Fold fold = scan_fold(gpu, x.shape());
  const Fold sums = reduction_fold(gpu, x.shape(), fold.chunk);
  if (range_holds(gpu, x.count(), DType::f32) && std::max(fold.groups(), sums.groups()) <= most_groups(gpu)) {
    Tensor totals;
    if (fold.chunks > 1) {
      totals = Tensor::empty({outer, fold.chunks, inner}, x.dtype() == DType::i32 ? DType::i32 : DType::f32,
                             x.device());
      sum_chunks(gpu, x, sums, totals);
      cumulative_sum(totals, reverse, totals);
    }
    return launch_scan(gpu, fold, x, reverse, totals, out);
  }
  if (outer > 1) {
    for (const Part part : halves(outer))
      cumulative_sum(narrowed(x, 0, part), reverse, narrowed(out, 0, part));
    return;
  }
  const std::int64_t n = x.size(1), longest = std::min(rows_at_once(gpu, x), ceil_div(n, 2));
  if (longest >= 1 && n > 1) return scan_pieces(x, reverse, longest, out);
  for (const Part part : halves(inner)) {
    const Tensor columns = Tensor::empty({1, n, part.count}, x.dtype(), x.device());
    cumulative_sum(columns_of(x, part), reverse, columns);
    copy(columns, narrowed(out, 2, part));
  }
}

}  // namespace heed::vulkan
