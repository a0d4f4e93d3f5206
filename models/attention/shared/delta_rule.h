#pragma once

#include "heed/core/tensor.h"

namespace heed {

/// Vectors for each token and head, as rows: [B, H, N, dk], but for values [B, H, N, dv].
struct DeltaRule {
  Tensor query;    ///< q
  Tensor reading;  ///< r
  Tensor writing;  ///< w
  Tensor value;    ///< v; undefined: 0
  /// g, at most 0: [B, H, N], or [B, H, N, dk] with a number for each row of S; undefined: 0
  Tensor log_decay = {};
  Tensor added_key = {};    ///< a; undefined: nothing is added
  Tensor added_value = {};  ///< u, of the shape of the output; needed where v is undefined
};

/// A state that maps keys to values, overwritten token by token:
///
///   S'_t = diag(e^{g_t}) S_{t-1}
///   S_t  = S'_t + w_t^T (v_t - r_t S'_t) + a_t^T u_t        o_t = q_t S_t  [B, H, N, dv]
///
/// In chunks of 32 ("Parallelizing linear Transformers with the delta rule over sequence length", Yang et al.
/// 2024, arXiv 2406.06484, section 3). With c_i the sum of g from the beginning of the chunk, L_ij = r_i
/// e^{c_i - c_j} w_j for j < i, A_ij = r_i e^{c_i - c_j} a_j for j < i, and T = (I + L)^-1, from the S before
/// a chunk
///
///   n  = T (v - A u - r e^{c} S)                                    what is written with w
///   o  = q e^{c} S + (q e^{c_i - c_j} w_j)_{j <= i} n + (q e^{c_i - c_j} a_j)_{j <= i} u
///   S <- e^{c_L} S + (w e^{c_L - c})^T n + (a e^{c_L - c})^T u
///
/// T comes from the inverses of blocks of 1, 2, 4, ... rows, in twice log2(32) products, which does not lose
/// digits where keys are alike, as powers of L would. With a number for each row of S, products of pairs are
/// taken level by level: for blocks of 2 m tokens, e^{c_i - c_j} of i in the second half and j in the first
/// is e^{c_i - c_m} e^{c_m - c_j}, neither of which exceeds 1, however fast the state fades; both exponents
/// are added up from the middle, not taken from c.
///
/// Time N (dk dv + 32 (dk + dv)), memory N (dk + dv + 32 + dk dv / 32), of decays for each row N dk log2(32).
/// With a `state` [B, H, dk, dv] that is S before the first position (undefined: 0), and becomes that after
/// the last; null: not wanted.
Tensor delta_rule(const DeltaRule& rule, Tensor* state);

}  // namespace heed
