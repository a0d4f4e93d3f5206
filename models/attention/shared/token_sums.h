#pragma once

#include "heed/core/tensor.h"
#include "heed/models/module.h"

// Shared by the variants whose tokens meet in sums instead of in pairs.

namespace heed {

/// y_t = e^{g_t} y_{t-1} + x_t with y_{-1} = 0, for x [R, T, n] and g [R, T], at most 0 (undefined: 0): sums
/// over every prefix that forget at the rate g. Time T n.
Tensor decayed_sums(const Tensor& x, const Tensor& log_decay);

/// The products of queries with a matrix that sums up keys and values so far:
///
///   S_t = e^{g_t} S_{t-1} + k_t^T v_t      o_t = q_t S_t
///
/// query, key [B, H, N, dk], value [B, H, N, dv], g = log_decay [1 or B, 1 or H, N], at most 0 (undefined: 0)
/// -> [B, H, N, dv]. In chunks of 64 positions, which meet in pairs, while one state a chunk stands for all
/// before it: time N (dk dv + 64 (dk + dv)), memory N max(64, dk dv / 64).
///
/// g of four axes [B, H, N, dk] has a number for each row of S: S_t = diag(e^{g_t}) S_{t-1} + k_t^T v_t. They
/// must be at least least_log_decay, and chunks have 16 positions.
///
/// With a `state` [B, H, dk, dv] that is S before the first position (undefined: 0), and becomes S after the
/// last: all that decoding has to keep.
Tensor linear_recurrence(const Tensor& query, const Tensor& key, const Tensor& value,
                         const Tensor& log_decay = {}, Tensor* state = nullptr);

/// With these for each of 16 positions, e^g and e^-g stay within the range of f32.
inline constexpr double least_log_decay = -5;

/// The same from both ends, for sequences without a direction: keys after the query decay as do those before
/// it, and the query's own counts once.
Tensor recurrence_both_ways(const Tensor& query, const Tensor& key, const Tensor& value,
                            const Tensor& log_decay);

/// First values for H heads that fade as e^( -e^A softplus(x + b) ), as in Mamba-2's code: e^A from
/// U(1, 16), and softplus(b) from e^U(log 0.001, log 0.1).
Tensor first_decay_rates(std::int64_t heads, Initialiser& initialiser);  // A
Tensor first_decay_steps(std::int64_t heads, Initialiser& initialiser);  // b

/// Where the real tokens of each sample stand among themselves, so that what is cut or transformed by the
/// length of a sample does not depend on the padding that a batch adds to it.
struct RealPlaces {
  Tensor place;  ///< i32 [B, N]: 0, 1, ... count - 1 at real tokens; meaningless at padding
  Tensor count;  ///< of real tokens, at least 1, [B, 1] (f32, or f64 where x is)
};

/// Of the tokens x [B, N, ...] with a mask i32 [B, N]. Without a mask all are real, and B is 1.
RealPlaces real_places(const Tensor& mask, const Tensor& x);

/// `total`, which is not negative, with 1 where it is 0: x / divisor(total) is 0 where nothing was added up.
Tensor divisor(const Tensor& total);

/// y_t = max(x_0, ..., x_t) along the last axis; no gradient.
Tensor running_max(const Tensor& x);

}  // namespace heed
