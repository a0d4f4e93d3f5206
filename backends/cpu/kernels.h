#pragma once

#include "heed/core/backend.h"

namespace heed::cpu {

#include "heed/backends/kernels.inc"

// What this backend alone provides.
void linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, double beta, const Tensor& dx,
                     const Tensor& dweight);

}  // namespace heed::cpu
