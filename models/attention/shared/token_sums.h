#pragma once

#include "heed/autograd/ops.h"
#include "heed/core/tensor.h"
#include "heed/models/module.h"

// Shared by the variants whose tokens meet in sums instead of in pairs.

namespace heed {

/// The output of recurrence(). Causal: it starts from `*state` (undefined: 0), which becomes S
/// after the last token and is all that decoding keeps; null: the sequence is whole. Bidirectional:
/// the sum of both directions' outputs; without a delta rule, a query's own token counts once.
Tensor recurrence_output(Recurrence of, bool causal, Tensor* state);

/// Initial values for H heads that fade as e^( -e^A softplus(x + b) ), as in Mamba-2's code: e^A
/// from U(1, 16), and softplus(b) from e^U(log 0.001, log 0.1).
Tensor first_decay_rates(std::int64_t heads, Initialiser& initialiser);  // A
Tensor first_decay_steps(std::int64_t heads, Initialiser& initialiser);  // b

/// Positions of real tokens among the real tokens of their sample. Cutting or transforming by them
/// does not depend on the padding of the batch.
struct RealPlaces {
  Tensor place;  ///< i32 [B, N]: 0, 1, ... count - 1 at real tokens; meaningless at padding
  Tensor count;  ///< of real tokens, at least 1, [B, 1] (f32, or f64 where x is)
};

/// Of the tokens x [B, N, ...] with a mask i32 [B, N]. Without a mask all are real, and B is 1.
RealPlaces real_places(const Tensor& mask, const Tensor& x);

/// `total`, which must not be negative, with zeros replaced by 1, so that x / divisor(total) is 0
/// for empty sums.
Tensor divisor(const Tensor& total);

}  // namespace heed
