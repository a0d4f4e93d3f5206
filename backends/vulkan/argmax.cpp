#include "heed/backends/vulkan/fold.h"

namespace heed::vulkan {
namespace {

/// Tensors are pairs of elements and the rows that they come from. The rows of the input are undefined at
/// first, the elements of the final result are not wanted.
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
    // A place for the values is bound in any case, and a shader that may write is taken to write.
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

}  // namespace heed::vulkan
