#pragma once

#include "heed/models/attention/shared/token_sums.h"

namespace heed {

/// Log-linear attention: "Log-linear attention", Guo et al. 2025, arXiv 2506.04761, section 3. Instead
/// of one state, a token t = 0, 1, ... reads one for each level l of a Fenwick tree, the larger the
/// more distant its tokens are:
///
///   o_t = lambda^0_t (q_t k_t) v_t + sum over l with bit l - 1 of t set: lambda^l_t q_t S^l_t
///
/// S^l_t sums e^{g_{j+1} + ... + g_t} k_j^T v_j over 2^(l-1) consecutive tokens, which end where
/// those of the next lower level begin, and at level 0 there is the token itself. O(N log N) time;
/// decoding keeps at most log2(N) + 1 states. `of` has a query, key, value and log_decay [B, H, N];
/// `scales` is lambda [B, H, N, m], whose last column holds for all higher levels, too. Causal: the
/// states are in the parts of `cache` (null: the sequence is whole). Bidirectional: the sum of both
/// directions' outputs, in which a query's own token counts once.
Tensor log_linear_output(const Recurrence& of, const Tensor& scales, bool causal, AttentionCache* cache);

}  // namespace heed
