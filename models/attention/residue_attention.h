#pragma once

#include "heed/autograd/ops.h"

namespace heed {

/// attention(query, key, value, options) in which positions r, r + stride, r + 2 stride, ... see each other
/// and nothing else: [B, H, N, dh] each, in time N (N / stride) dh. Of `options` the key mask, causal, scale
/// and dropout count.
Tensor residue_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t stride,
                         AttentionOptions options);

}  // namespace heed
