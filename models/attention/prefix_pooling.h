#pragma once

#include "heed/core/tensor.h"

namespace heed {

/// Softmax pooling of every prefix: out[r, t] = sum_{i <= t} e^{a_i} x_i / sum_{i <= t} e^{a_i}, from logits
/// a [R, N] and values x [R, N, n] to [R, N, n]. Time N n, stable for any logits. Where `allowed` (i32
/// [R, N], undefined = all) is 0 a position does not count; a prefix in which none counts gives 0.
Tensor prefix_pooling(const Tensor& logits, const Tensor& values, const Tensor& allowed = {});

}  // namespace heed
