#include "heed/backends/vulkan/fold.h"

namespace heed::vulkan {
namespace {

/// The type of results that are to be reduced further.
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

}  // namespace heed::vulkan
