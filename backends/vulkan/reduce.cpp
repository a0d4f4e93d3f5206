#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>

#include "heed/backends/vulkan/launch.h"

namespace heed::vulkan {
namespace {

// --- how workgroups cover a computation along an axis

/// The workgroups with which one dispatch covers [outer, n, inner] for a computation along n
/// (shaders/fold.glsl).
struct Fold {
  std::int64_t outer, n, inner;
  std::int64_t chunk, chunks;  ///< n is cut into `chunks` pieces of `chunk` rows; the last may have fewer
  std::uint32_t workgroup, width, height;  ///< invocations: in all, along inner, along n

  Fold(const Shape& shape, std::int64_t rows, std::int64_t size, std::int64_t along_inner,
       std::int64_t along_n)
      : outer(shape[0]),
        n(shape[1]),
        inner(shape[2]),
        chunk(rows),
        chunks(std::max<std::int64_t>(1, ceil_div(n, rows))),
        workgroup(static_cast<std::uint32_t>(size)),
        width(static_cast<std::uint32_t>(along_inner)),
        height(static_cast<std::uint32_t>(along_n)) {}

  std::int64_t groups() const {
    return ceil_div(inner, width) * ceil_div(outer * chunks, workgroup / (width * height));
  }
  /// Pushes the fold, sets the traffic, and records the dispatch.
  void run(Launch& launch, std::initializer_list<std::int64_t> further, std::int64_t bytes) const {
    launch.push(outer, n, inner, chunk, chunks);
    for (const std::int64_t number : further) launch.push(number);
    launch.work(0, static_cast<double>(bytes)).folded_groups(groups());
  }
};

std::int64_t bytes_in(const Tensor& x) {
  return x.count() * static_cast<std::int64_t>(size_of(x.dtype()));
}

std::int64_t power_above(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

/// A layout for reductions of chunks of a given length.
Fold reduction_fold(const Gpu& gpu, const Shape& shape, std::int64_t chunk) {
  const std::int64_t inner = shape[2], size = workgroup_size(gpu);
  // Neighbours in memory are read together; then there are as many invocations along n as leave four rows to
  // each.
  const std::int64_t narrow = std::min<std::int64_t>({power_above(inner), 32, size});
  const std::int64_t height =
      std::min(power_above(ceil_div(std::max<std::int64_t>(chunk, 1), 4)), size / narrow);
  return {shape, chunk, size, std::min(power_above(inner), size / height), height};
}

/// A layout for reductions of whole rows. If there are too few outputs to occupy a GPU, rows are cut into
/// chunks, whose results are reduced again. The choice does not depend on the device at hand, so that the
/// result is the same on all.
Fold reduction_fold(const Gpu& gpu, const Shape& shape) {
  constexpr std::int64_t enough_groups = 512;
  constexpr std::int64_t fewest_rows = 16, most_rows = 4096;  // rows of one invocation
  const std::int64_t n = std::max<std::int64_t>(shape[1], 1);
  const Fold whole = reduction_fold(gpu, shape, n);
  std::int64_t chunks =
      std::min(enough_groups / std::max<std::int64_t>(whole.groups(), 1), n / (whole.height * fewest_rows));
  chunks = std::max({chunks, ceil_div(n, whole.height * most_rows), std::int64_t{1}});
  return chunks == 1 ? whole : reduction_fold(gpu, shape, ceil_div(n, chunks));
}

/// A contiguous copy of some columns of [outer, n, inner].
Tensor select_columns(const Tensor& x, Part part) {
  return compact(narrowed(x, 2, part));
}

/// How many whole rows of [1, n, inner] one dispatch can bind; 0 if even the columns are too many for one.
std::int64_t rows_at_once(const Gpu& gpu, const Tensor& x) {
  const Fold one_chunk = reduction_fold(gpu, {1, x.size(1), x.size(2)}, std::max<std::int64_t>(x.size(1), 1));
  if (one_chunk.groups() > most_groups(gpu)) return 0;
  return most_bytes(gpu) / (x.size(2) * static_cast<std::int64_t>(sizeof(float)));
}

/// The contiguous tensors that a reduction reads ([outer, n, inner]) or writes ([outer, inner]). The first
/// input is always defined; the others may not be.
using FoldTensors = std::array<Tensor, 2>;

/// f of each tensor that is defined.
template <class F>
FoldTensors map_tensors(const FoldTensors& tensors, const F& f) {
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
      fold_rows(gpu, kernel, map_tensors(in, cut), map_tensors(out, cut), first_row);
    }
    return;
  }
  const std::int64_t longest = std::min(rows_at_once(gpu, x), ceil_div(n, 2));
  if (longest < 2) {
    for (const Part part : halves(inner)) {
      const auto columns = [part](const Tensor& t) { return select_columns(t, part); };
      const auto cut = [part](const Tensor& t) { return narrowed(t, 1, part); };
      fold_rows(gpu, kernel, map_tensors(in, columns), map_tensors(out, cut), first_row);
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
    fold_rows(gpu, kernel, map_tensors(in, rows), map_tensors(partials, result), first_row + begin);
  }
  reduce_partials(partials);
}

// --- sums, maxima and minima

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
  fold.run(launch, {}, bytes_in(x));
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

/// Its tensors are pairs: the low and the high words of sums. The high words of the first input and of the
/// final result are undefined.
struct IntegerSum {
  const Tensor& result;  // all of it

  FoldTensors partials(const Shape& shape) const {
    return {Tensor::empty(shape, DType::i32, result.device()),
            Tensor::empty(shape, DType::i32, result.device())};
  }
  void launch(Gpu& gpu, const Fold& fold, const FoldTensors& in, const FoldTensors& out, std::int64_t) const {
    const bool last = !out[1].defined();
    Launch launch(gpu, shader_name("sum_integers", DType::i32),
                  {fold.workgroup, fold.width, fold.height, in[1].defined() ? 1u : 0u, last ? 0u : 1u});
    launch.write(out[0], either(out[1], out[0]))
        .read(in[0], in[1])
        .reports_errors("sum: a sum does not fit in i32; convert the tensor to f32 first");
    fold.run(launch, {last ? out[0].offset() - result.offset() : 0}, bytes_in(in[0]));
  }
};

}  // namespace

void reduce(ReduceOp op, const Tensor& x, const Tensor& out) {
  if (out.count() == 0) return;
  if (op == ReduceOp::sum && x.dtype() == DType::i32)
    return fold_rows(gpu_of(x), IntegerSum{out}, {x, Tensor()}, {out, Tensor()});
  fold_rows(gpu_of(x), Reduction{op, wide(x.dtype()), x.device()}, {x, Tensor()}, {out, Tensor()});
}

// --- the row of the largest element

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
    launch.write(result, either(values, result)).read(x, rows);
    fold.run(launch, {first_row}, bytes_in(x));
  }
};

}  // namespace

void argmax(const Tensor& x, const Tensor& out) {
  if (out.count() == 0) return;
  fold_rows(gpu_of(x), LargestRow{x.dtype(), x.device()}, {x, Tensor()}, {Tensor(), out});
}

// --- running sums

namespace {

/// Tensors with a wide inner axis are scanned by one invocation per column, narrow ones by a workgroup along
/// n. A long n is cut into chunks, for occupancy and to limit the rounding errors of a long chain.
Fold scan_fold(const Gpu& gpu, const Shape& shape) {
  const std::int64_t n = shape[1], inner = shape[2], size = workgroup_size(gpu);
  const std::int64_t width = std::min(power_above(inner), size);
  const std::int64_t height = inner >= 32 ? 1 : std::min(power_above(n), size / width);
  const std::int64_t longest = height == 1 ? 128 : 8 * height;
  return {shape, n > 2 * longest ? longest : n, size, width, height};
}

void launch_scan(Gpu& gpu, const Fold& fold, const Tensor& x, bool reverse, const Tensor& totals,
                 const Tensor& out) {
  Launch launch(gpu, shader_name("cumulative_sum", x.dtype()),
                {fold.workgroup, fold.width, fold.height, reverse ? 1u : 0u, totals.defined() ? 1u : 0u});
  launch.write(out).read(x, totals);
  fold.run(launch, {}, 2 * bytes_in(x));
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
      totals = Tensor::empty({outer, fold.chunks, inner}, wide(x.dtype()), x.device());
      launch_reduce(gpu, ReduceOp::sum, sums, x, totals);
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
    cumulative_sum(select_columns(x, part), reverse, columns);
    copy(columns, narrowed(out, 2, part));
  }
}

}  // namespace heed::vulkan
