#pragma once

#include "heed/core/tensor.h"

namespace heed {

/// Where the real tokens of each sample stand among themselves, so that what is cut or transformed by the
/// length of a sample does not depend on the padding that a batch adds to it.
struct RealPlaces {
  Tensor place;  ///< i32 [B, N]: 0, 1, ... count - 1 at real tokens; meaningless at padding
  Tensor count;  ///< of real tokens, at least 1, [B, 1] (f32, or f64 where x is)
};

/// Of the tokens x [B, N, ...] with a mask i32 [B, N]. Without a mask all are real, and B is 1.
RealPlaces real_places(const Tensor& mask, const Tensor& x);

}  // namespace heed
