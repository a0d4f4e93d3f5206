#include "heed/training/gradient_norm.h"

#include "heed/autograd/autograd.h"
#include "heed/autograd/ops.h"
#include "heed/core/backend.h"

namespace heed {

GradientNorm::GradientNorm(std::span<const NamedTensor> parameters, double divisor) : divisor_(divisor) {
  check(divisor > 0, "gradient norm: the divisor is ", divisor, "; it must be positive");
  std::vector<Tensor> gradients;
  for (const NamedTensor& parameter : parameters) {
    const Tensor grad = gradient(*parameter.tensor);
    if (!grad.defined()) continue;
    names_.push_back(parameter.name);
    gradients.push_back(contiguous(grad.detach()));
  }
  check(!gradients.empty(), "gradient norm: no parameter has a gradient; call backward() first");

  const NoGrad no_grad;
  const Device device = gradients[0].device();
  const Backend& backend = backend_of(device);
  require_kernel(backend.sums_of_squares != nullptr, "sums_of_squares", device);
  const DType dtype = device.type == DeviceType::cpu ? DType::f64 : DType::f32;
  squares_ = Tensor::empty({static_cast<std::int64_t>(gradients.size())}, dtype, device);
  backend.sums_of_squares(gradients, squares_);
  norm_ = sqrt(sum(squares_, 0, true)) * (1 / divisor);
}

Tensor GradientNorm::scale(double limit) const {
  const NoGrad no_grad;
  if (limit <= 0) return Tensor::full({1}, 1 / divisor_, norm_.dtype(), norm_.device());
  // limit / 0 is infinite, which the clamp turns into 1.
  return clamp(div(Tensor::full({1}, limit, norm_.dtype(), norm_.device()), norm_), 0, 1) * (1 / divisor_);
}

}  // namespace heed
