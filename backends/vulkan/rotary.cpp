#include "heed/backends/vulkan/kernels.h"
#include "heed/backends/vulkan/rows.h"

namespace heed::vulkan {
namespace {

/// `direction` is 1, or -1 to turn back.
void turn(const Tensor& x, const Tensor& cosines, const Tensor& sines, double direction, const Tensor& out) {
  if (x.count() == 0) return;
  Gpu& gpu = gpu_of(x);
  const std::int64_t positions = x.size(1), heads = x.size(2), width = heads * x.size(3), pairs = width / 2;
  const auto element = static_cast<std::int64_t>(size_of(x.dtype()));
  const std::uint32_t workgroup = workgroup_size(gpu);
  const Shape rows{x.size(0) * positions, width};
  const auto each = [&](std::int64_t begin, std::int64_t end) {
    Launch(gpu, shader_name("rotary", x.dtype()), {workgroup})
        .read(row_range(x.view(rows), begin, end))
        .read(cosines)
        .read(sines)
        .write(row_range(out.view(rows), begin, end))
        .push((end - begin) * pairs)
        .push(begin % positions)
        .push(positions)
        .push(heads)
        .push(x.size(3) / 2)
        .push(direction)
        .work(0, 2.0 * static_cast<double>((end - begin) * width * element))
        .folded_groups(ceil_div((end - begin) * pairs, workgroup));
  };
  for_row_ranges(gpu, rows[0], width * element, pairs, workgroup, each);
}

}  // namespace

void rotary_forward(const Tensor& x, const Tensor& cosines, const Tensor& sines, const Tensor& out) {
  turn(x, cosines, sines, 1, out);
}

void rotary_backward(const Tensor& grad, const Tensor& cosines, const Tensor& sines, const Tensor& dx) {
  turn(grad, cosines, sines, -1, dx);
}

}  // namespace heed::vulkan
