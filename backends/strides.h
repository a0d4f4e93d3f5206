#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "heed/core/tensor.h"

// What strides say, for the kernels of every backend.

namespace heed {

/// Whether the rows of the last two axes are lines of neighbouring elements; else their columns are. Where an
/// extent is 1 its stride says nothing.
inline bool lies_by_rows(const Tensor& matrix) {
  const std::int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  return columns > 1 ? matrix.stride(-1) == 1 : matrix.stride(-2) != 1 || rows <= 1;
}

/// Whether an axis and one within it, of `inner_extent` elements, are walked as one long axis by all
/// operands, whose strides along both are given.
inline bool goes_on_evenly(std::span<const std::int64_t> outer, std::span<const std::int64_t> inner,
                           std::int64_t inner_extent) {
  for (std::size_t k = 0; k < outer.size(); ++k)
    if (outer[k] != inner[k] * inner_extent) return false;
  return true;
}

}  // namespace heed
