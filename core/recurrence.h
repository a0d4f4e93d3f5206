#pragma once

#include <cstdint>

#include "heed/core/tensor.h"

namespace heed {

/// A state S [dk, dv] for each head, which maps keys to values and changes token by token:
///
///   S'_t = diag(e^{g_t}) S_{t-1}
///   S_t  = S'_t + k_t^T v_t + w_t^T (x_t - r_t S'_t)        o_t = q_t S_t
///
/// Gated linear attention (Yang et al. 2023, arXiv 2312.06635, section 4.2) uses k and v; the delta
/// rule (Yang et al. 2024, arXiv 2406.06484, section 2.2) uses r, w and x; RWKV-7 (arXiv
/// 2503.14456, eq. 16) combines both. All tensors share one floating dtype and one device. q, k, r
/// and w are [B, H, N, dk]; v and x are [B, H, N, dv].
struct Recurrence {
  Tensor query;           ///< q
  Tensor key = {};        ///< k; undefined: nothing is added
  Tensor value = {};      ///< v, defined where k is
  Tensor log_decay = {};  ///< g: [B, H, N], or [B, H, N, dk] with one per row of S; undefined: 0
  Tensor reading = {};    ///< r; undefined: nothing is overwritten
  Tensor writing = {};    ///< w, defined where r is
  Tensor target = {};     ///< x; undefined: 0
  Tensor state = {};      ///< S before the first token, [B, H, dk, dv]; undefined: 0
  bool reverse = false;   ///< from the last token to the first
};

/// Number of tokens between the states that the forward kernel keeps, in processing order. The
/// backward pass recomputes the states in between.
inline constexpr std::int64_t recurrence_chunk = 32;

/// Returns the floating-point operations of a kernel's products with states, for profiles; `width`
/// is dv.
inline double recurrence_flops(const Recurrence& of, std::int64_t width) {
  const double each = static_cast<double>(of.query.count()) * static_cast<double>(width);
  return each * (2 + (of.key.defined() ? 2 : 0) + (of.reading.defined() ? 4 : 0));
}
/// Returns those of the backward kernel, which recomputes the states and computes two gradients of
/// every product.
inline double recurrence_backward_flops(const Recurrence& of, std::int64_t width) {
  const double each = static_cast<double>(of.query.count()) * static_cast<double>(width);
  return each * (4 + (of.key.defined() ? 6 : 0) + (of.reading.defined() ? 10 : 0));
}

}  // namespace heed
