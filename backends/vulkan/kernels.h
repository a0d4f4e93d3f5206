#pragma once

#include "heed/core/backend.h"

namespace heed::vulkan {

#include "heed/backends/kernels.inc"

// Provided by this backend alone.
LogitChunks logit_chunks(Device device, DType dtype, std::int64_t rows, std::int64_t classes);
void linear_maps(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 std::span<const Tensor> outs);
void activated_linear_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, UnaryOp activation,
                              const Tensor& sums, const Tensor& out);
void activated_linear_backward(const Tensor& grad, const Tensor& weight, UnaryOp activation,
                               const Tensor& saved, const Tensor& dsums);
void linear_gradients(const Tensor& grad, const Tensor& x, const Tensor& dweight, const Tensor& dbias);
void scale_all(std::span<const Tensor> x, const Tensor& factor, bool add, std::span<const Tensor> out);

}  // namespace heed::vulkan
