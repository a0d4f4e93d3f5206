#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// The rows of a matrix in 8 bits: element (i, j) is scales[i] * values()[i * columns + j].
struct Int8Rows {
  static constexpr std::int64_t slack = 64;  ///< bytes beyond the last row, which a vector may read

  std::int64_t columns = 0;
  Tensor memory;              ///< i32: of the backend's pool, with its large pages
  std::vector<float> scales;  ///< the largest magnitude of the row / 127

  /// Whether the columns of a view [..., k, n] into the matrix are pieces of its rows, neighbours of neighbours.
  bool hold_columns(const Tensor& view) const;
  std::int8_t* values() const { return reinterpret_cast<std::int8_t*>(memory.data<std::int32_t>()); }
};

/// Rounds each element of `matrix` (f32 [rows, columns], contiguous, the whole of its storage, on the CPU) to the nearest
/// multiple of its row's scale, ties to even, and leaves the rows in 8 bits beside them: linear maps of up to 6 rows with
/// this matrix as weight read these, a quarter of the bytes, until the matrix is overwritten. All others read the rounded
/// f32, so that both compute with the same numbers. Throws an Error for another tensor and for
/// elements that are not finite; `matrix` is then as it was.
void round_to_int8(const Tensor& matrix);

}  // namespace heed
