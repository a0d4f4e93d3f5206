#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/rows.h"
#include "heed/core/error.h"

namespace heed::vulkan {

namespace {

/// [batch, n, width] as [batch n, width].
Tensor flat_rows(const Tensor& x) {
  return x.view({x.size(0) * x.size(1), x.size(2)});
}

std::string out_of_range(const char* op, std::int64_t rows) {
  return concat_text(op, ": an index is outside [0, ", rows, ") and is not -1");
}

}  // namespace

void gather_rows(const Tensor& x, const Tensor& index, const Tensor& out) {
  if (out.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t n = x.size(1), m = index.size(1), width = x.size(2);
  const std::uint32_t workgroup = workgroup_size(gpu);
  const std::int64_t per_group = 4 * workgroup;  // elements
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const std::int64_t most_sources = most_elements(gpu, width * element);
  const Tensor all_sources = flat_rows(x), positions = index.view({index.count()}), rows = flat_rows(out);

  const auto from = [&](std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
    const std::int64_t count = (end - begin) * width;
    Launch(gpu, shader_name_by_size("gather_rows", x.dtype()), {workgroup})
        .read(row_range(all_sources, first, last))
        .read(row_range(positions, begin, end))
        .write(row_range(rows, begin, end))
        .reports_errors(out_of_range("gather_rows", n))
        .push(begin)
        .push(count)
        .push(n)
        .push(m)
        .push(width)
        .push(first)
        .push(last)
        .work(0, 2.0 * static_cast<double>(count * element))
        .folded_groups(ceil_div(count, per_group));
  };
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    // The rows of x that belong to these batch entries, as many at a time as can be bound.
    const std::int64_t lowest = begin / m * n, highest = ceil_div(end, m) * n;
    if (highest - lowest <= most_sources) return from(begin, end, lowest, highest);
    for (std::int64_t first = lowest; first < highest; first += most_sources)
      from(begin, end, first, std::min(highest, first + most_sources));
  };
  for_row_ranges(gpu, index.count(), width * element, width, per_group, each);
}

namespace {

/// With so few rows it is cheaper to look for those with the same target than to sort.
constexpr std::int64_t searched_rows = 64;

/// `first_position` counts the indices before this part of the call.
void scatter(Gpu& gpu, const Tensor& x, const Tensor& index, const Tensor& out, std::int64_t first_position) {
  const std::int64_t batch = x.size(0), m = x.size(1), width = x.size(2), n = out.size(1);
  const std::uint32_t workgroup = workgroup_size(gpu);
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const bool fits = x.count() <= most_elements(gpu, element) && x.count() <= most_groups(gpu) * workgroup;
  if (!fits && batch > 1) {
    const std::int64_t half = batch / 2;
    scatter(gpu, row_range(x, 0, half), row_range(index, 0, half), row_range(out, 0, half), first_position);
    return scatter(gpu, row_range(x, half, batch), row_range(index, half, batch), row_range(out, half, batch),
                   first_position + half * m);
  }
  if (!fits && m > 1) {
    // One after the other, so that rows are still added in their order.
    const std::int64_t half = m / 2;
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      const Tensor rows = x.view({1, end - begin, width}, x.strides(), x.offset() + begin * width);
      const Tensor targets = index.view({1, end - begin}, index.strides(), index.offset() + begin);
      scatter(gpu, rows, targets, out, first_position + begin);
    };
    part(0, half);
    return part(half, m);
  }

  Tensor order;
  if (m > searched_rows) {
    order = Tensor::empty({batch, m}, DType::i32, x.device());
    argsort(index, false, order);
  }
  const Tensor targets = flat_rows(out);
  const std::int64_t most_targets = most_elements(gpu, width * element);
  std::int64_t first = 0;
  do {  // also where there are no targets: indices are looked at
    const std::int64_t last = std::min(batch * n, first + most_targets);
    Launch(gpu, shader_name("scatter_add_rows", x.dtype()), {workgroup, order.defined()})
        .read(x)
        .read(index)
        .read(order)
        .update(row_range(targets, first, last))
        .reports_errors(out_of_range("scatter_add_rows", n))
        .push(first_position)
        .push(x.count())
        .push(n)
        .push(m)
        .push(width)
        .push(first)
        .push(last)
        .work(0, 3.0 * static_cast<double>(x.count() * element))
        .folded_groups(ceil_div(x.count(), workgroup));
    first = last;
  } while (first < batch * n);
}

}  // namespace

void scatter_add_rows(const Tensor& x, const Tensor& index, const Tensor& out) {
  check(is_floating(x.dtype()), "scatter_add_rows: dtype ", x.dtype(), " is not supported; use f32");
  if (x.count() > 0) scatter(gpu_of(x), x, index, out, 0);
}

}  // namespace heed::vulkan
