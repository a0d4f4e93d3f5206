#pragma once

#include "heed/core/recurrence.h"

namespace heed {

/// The results of recurrence().
struct RecurrenceResult {
  Tensor output;  ///< o [B, H, N, dv]
  Tensor state;   ///< S after the last token [B, H, dk, dv]
};
/// Runs a state that maps keys to values and changes token by token, by the equations of Recurrence
/// (core/recurrence.h). Any g up to 0 is valid, -infinity included. Both results are
/// differentiable. On the CPU, a sequence processed in pieces, each starting from the state after
/// the piece before, gives bit-identical results. In f16 and bf16 the state is f32 within a call.
/// Takes O(N dk dv) time; the backward pass keeps a state for every 32 tokens. Throws an Error for
/// shapes that do not fit, for v without k, for w or x without r, and when both k and r are
/// undefined.
RecurrenceResult recurrence(const Recurrence& of);

}  // namespace heed
