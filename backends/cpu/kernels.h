#pragma once

#include "heed/core/backend.h"

namespace heed::cpu {

#include "heed/backends/kernels.inc"

// Only this backend provides these.
void linear_maps(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 std::span<const Tensor> outs);
void linear_backward(std::span<const Tensor> grads, const Tensor& x, std::span<const Tensor> weights,
                     double beta, const Tensor& dx, std::span<const Tensor> dweights);

}  // namespace heed::cpu
