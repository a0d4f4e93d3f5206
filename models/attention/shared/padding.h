#pragma once

#include "heed/core/tensor.h"

namespace heed {

/// x [B, N, d] with zeros in the rows of padding that are not finite: 0 times a NaN would be one. Others stay, since
/// a mechanism may divide by their length.
Tensor with_finite_padding(const Tensor& x, const Tensor& mask);

}  // namespace heed
