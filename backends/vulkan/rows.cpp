#include "heed/backends/vulkan/rows.h"

#include <bit>

namespace heed::vulkan {

namespace {

std::int64_t power_above(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

}  // namespace

Fold reduction_fold(const Gpu& gpu, const Shape& shape, std::int64_t chunk) {
  const std::int64_t outer = shape[0], n = shape[1], inner = shape[2];
  const std::int64_t size = group_size(gpu, 256);
  // Neighbours in memory are read together; then there are as many invocations along n as leave four rows to
  // each.
  const std::int64_t narrow = std::min<std::int64_t>({power_above(inner), 32, size});
  const std::int64_t height =
      std::min(power_above(ceil_div(std::max<std::int64_t>(chunk, 1), 4)), size / narrow);
  const std::int64_t width = std::min(power_above(inner), size / height);
  return {.outer = outer,
          .n = n,
          .inner = inner,
          .chunk = chunk,
          .chunks = std::max<std::int64_t>(1, ceil_div(n, chunk)),
          .workgroup = static_cast<std::uint32_t>(size),
          .width = static_cast<std::uint32_t>(width),
          .height = static_cast<std::uint32_t>(height)};
}

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

Tensor columns_of(const Tensor& x, Part part) {
  const Tensor columns = Tensor::empty({x.size(0), x.size(1), part.count}, x.dtype(), x.device());
  copy(narrowed(x, 2, part), columns);
  return columns;
}

std::int64_t rows_at_once(const Gpu& gpu, const Tensor& x) {
  const Fold one_chunk = reduction_fold(gpu, {1, x.size(1), x.size(2)}, std::max<std::int64_t>(x.size(1), 1));
  if (one_chunk.groups() > most_groups(gpu)) return 0;
  return most_bytes(gpu) / (x.size(2) * static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace heed::vulkan
