#pragma once

#include "heed/core/tensor.h"

namespace heed {

/// [B, N, H dh] -> [B, H, N, dh], a view: head h owns columns h dh ... (h + 1) dh - 1.
Tensor split_heads(const Tensor& x, std::int64_t heads);
/// [B, H, N, dh] -> [B, N, H dh], the inverse: a view when x lies in memory as [B, N, H, dh], else a copy.
Tensor merge_heads(const Tensor& x);

}  // namespace heed
