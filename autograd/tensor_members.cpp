// What a Tensor does by the op layer: core/tensor.h declares it, so that it reads as it does elsewhere.

#include <cstddef>
#include <vector>

#include "heed/autograd/ops.h"
#include "heed/autograd/recording.h"

namespace heed {

Tensor to(const Tensor& x, Device device) {
  check(x.defined(), "to: the operand is undefined");
  if (x.device() == device) return x;
  const bool to_cpu = device.type == DeviceType::cpu;
  check(to_cpu || x.dtype() != DType::f64, "to: f64 exists on the CPU only, not on ", device,
        "; cast to f32 first");
  check(!to_cpu || !is_half(x.dtype()), "to: ", x.dtype(),
        " exists on Vulkan devices only; cast to f32 first");
  const Tensor source = contiguous(x.detach());
  const Tensor out = Tensor::empty(x.shape(), x.dtype(), device);
  std::vector<std::byte> host(static_cast<std::size_t>(x.count()) * size_of(x.dtype()));
  if (!host.empty()) {
    backend_of(source).download(source, host.data());
    backend_of(out).upload(host.data(), out);
  }
  return record("to", out, {x},
                [from = x.device()](const Tensor& grad) { return Gradients{to(grad, from)}; });
}

Tensor Tensor::to(DType dtype) const {
  check(defined(), "to: the operand is undefined");
  return cast(*this, dtype);
}

Tensor Tensor::to(Device device) const {
  return heed::to(*this, device);
}

Tensor Tensor::operator[](std::int64_t index) const {
  check(defined(), "[]: the tensor is undefined");
  check(rank() > 0, "[", index, "]: a tensor of rank 0 has no axis to index");
  const std::int64_t extent = shape_[0];
  check(index >= -extent && index < extent, "[", index, "]: the first axis of shape ", shape_, " has ",
        extent, " elements");
  return select(*this, 0, index);
}

}  // namespace heed
