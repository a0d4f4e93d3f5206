#pragma once

#include "heed/core/recurrence.h"

namespace heed {

/// The results of recurrence().
struct Recurred {
  Tensor output;  ///< o [B, H, N, dv]
  Tensor state;   ///< S after the last token [B, H, dk, dv]
};
/// A state that maps keys to values and changes token by token: the equations are those of Recurrence
/// (core/recurrence.h). Any g up to 0 is right, -infinity included. Both results are differentiable. A
/// sequence taken in pieces, each from the state that the one before has left, gives the same bits on the
/// CPU. In f16 and bf16 the state is f32 within a call. Time N dk dv; the backward pass keeps a state for
/// every 32 tokens. Throws an Error for shapes that do not fit, for v without k, for w or x without r, and
/// without k and r.
Recurred recurrence(const Recurrence& of);

}  // namespace heed
