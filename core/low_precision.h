#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "heed/core/tensor.h"

namespace heed {

/// While one lives, matrix products, linear maps and attention of f32 that the calling thread starts on the
/// CPU round what they multiply to bf16, to the nearest even, and add up in f32; numbers below 2^-126 count
/// as 0. Tensors stay f32, and all other ops compute in it. Of a linear map's rows up to 6, and as many that
/// are left over after whole tiles, may stay exact: reading the weights bounds these. Products with a matrix,
/// where a processor has instructions for them, take about half the time.
///
/// Autocast and `--precision bf16` on the CPU are made of it. It must live until backward() has returned.
class Bf16Products {
 public:
  /// With `on` false, products inside are exact again. Throws an Error where the processor has no such
  /// instructions.
  explicit Bf16Products(bool on = true);
  ~Bf16Products();
  Bf16Products(const Bf16Products&) = delete;
  Bf16Products& operator=(const Bf16Products&) = delete;

  /// Whether this processor has them: AVX-512 BF16 (AMD since Zen 4, Intel's Cooper Lake and since Sapphire
  /// Rapids).
  static bool available();
  /// Whether the calling thread's products are rounded.
  static bool active();

 private:
  bool before_;
};

/// The rows of a matrix in 8 bits: element (i, j) is scales[i] * values()[i * columns + j].
struct Int8Rows {
  static constexpr std::int64_t slack = 64;  ///< bytes beyond the last row, which a vector may read

  std::int64_t columns = 0;
  Tensor memory;              ///< i32: of the backend's pool, with its large pages
  std::vector<float> scales;  ///< the largest magnitude of the row / 127

  /// Whether the columns of a view [..., k, n] into the matrix are pieces of its rows, neighbours of
  /// neighbours.
  bool hold_columns(const Tensor& view) const;
  std::int8_t* values() const { return reinterpret_cast<std::int8_t*>(memory.data<std::int32_t>()); }
};

/// Rounds each element of `matrix` (f32 [rows, columns], contiguous, the whole of its storage, on the CPU) to
/// the nearest multiple of its row's scale, ties to even, and leaves the rows in 8 bits beside them: linear
/// maps of up to 6 rows with this matrix as weight read these, a quarter of the bytes, until the matrix is
/// overwritten. All others read the rounded f32, so that both compute with the same numbers. Throws an Error
/// for another tensor and for elements that are not finite; `matrix` is then as it was.
void round_to_int8(const Tensor& matrix);

}  // namespace heed
