#pragma once

#include "heed/autograd/ops.h"

namespace heed {

/// Attention among the positions of one residue modulo `stride`: query i sees the keys j with (i - j) mod
/// stride = 0 (and j <= i with options.causal). q, k, v [B, H, N, dh] of one sequence; options without mask
/// and pattern. The positions of a residue are brought together, so that time is N (N / stride) d.
Tensor residue_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t stride,
                         const AttentionOptions& options);

/// The same over the keys with |i - j| >= `apart` stride alone, to be joined with attention over nearer ones.
AttentionPart residue_attention_part(const Tensor& query, const Tensor& key, const Tensor& value,
                                     std::int64_t stride, std::int64_t apart,
                                     const AttentionOptions& options);

}  // namespace heed
