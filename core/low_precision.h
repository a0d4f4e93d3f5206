#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heed/core/scope.h"
#include "heed/core/tensor.h"

namespace heed {

/// The precision of f32 matrix products, linear maps and attention on the CPU. Tensors and sums are f32
/// in any case, and all other ops compute in f32.
enum class MatmulPrecision : std::uint8_t {
  highest,  ///< in f32
  /// Three products in bf16, of each factor's nearest bf16 and of the rest: an error of about 4e-6 of the
  /// norm. Takes about half the time with AMX.
  high,
  /// Factors are rounded to bf16, ties to even: an error of about 2e-3. Takes a fraction of the time with
  /// AMX (Intel since Sapphire Rapids), and half of it with AVX-512 BF16 on AMD's processors (since Zen 4).
  medium,
};

/// Returns whether products in this precision are faster than f32 on this processor.
bool is_fast(MatmulPrecision precision);
/// Returns the instructions that multiply in this precision, such as "AMX"; "" for those of f32.
std::string matmul_instructions(MatmulPrecision precision);

/// Sets the precision for ops that this thread starts while it lives; where is_fast() is false, products
/// stay f32. It must live until backward() has returned. Autocast and `--precision` use it on the CPU.
///
/// In high and medium, magnitudes below 2^-126 count as 0. A linear map may leave up to 6 rows exact (all its
/// rows, or the remainder after whole tiles), because their time goes into reading the weights.
class WithMatmulPrecision : Scoped<&Scope::matmul_precision> {
 public:
  explicit WithMatmulPrecision(MatmulPrecision precision)
      : Scoped(is_fast(precision) ? precision : MatmulPrecision::highest) {}
  /// The precision of the calling thread's products.
  static MatmulPrecision active() { return current_scope.matmul_precision; }
  /// True unless they are in f32.
  static bool is_lower() { return active() != MatmulPrecision::highest; }
};

/// Converts a bfloat16, the upper half of an f32, exactly.
inline float bf16_to_float(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

/// Returns the nearest bfloat16, ties to even.
inline std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// A copy of a matrix in fewer bits than f32. Element (i, j) is values()[i * columns + j] in bf16,
/// and scales[i] times that in int8.
struct NarrowRows {
  enum class Format : std::uint8_t { bf16, int8 };
  /// Elements after the last row that a vector load may read.
  static constexpr std::int64_t slack = 64;

  Format format = Format::bf16;
  std::int64_t rows = 0, columns = 0;
  Tensor memory;              ///< i32, from the backend's pool with its large pages
  std::vector<float> scales;  ///< of int8: the largest magnitude of the row / 127

  /// The copy that round_to_int8() or round_to_bf16() kept of the matrix that fills a storage; null when
  /// neither was called or the matrix has been overwritten since.
  static const NarrowRows* kept(const Storage& storage) {
    return static_cast<const NarrowRows*>(storage.derived());
  }
  /// True when every column of a view [..., k, n] into the matrix is a contiguous piece of one of
  /// its rows, and neighbouring columns come from neighbouring rows.
  bool has_columns_of(const Tensor& view) const;
  /// The elements. `Value` is std::uint16_t, the upper half of an f32, for bf16, and std::int8_t
  /// for int8.
  template <class Value>
  Value* values() const {
    return reinterpret_cast<Value*>(memory.data<std::int32_t>());
  }
};

/// Rounds each element of `matrix` (f32 [rows, columns], contiguous, filling its storage, on the
/// CPU) to the nearest multiple of its row's scale, ties to even, and keeps an 8-bit copy of the
/// rows with the storage. Until the matrix is overwritten, linear maps of up to 6 rows that use it
/// as weight read this copy, a quarter of the bytes. Everything else reads the rounded f32 values,
/// so both compute with the same numbers. Throws an Error for any other tensor or for elements that
/// are not finite, and leaves `matrix` unchanged then.
void round_to_int8(const Tensor& matrix);

/// Rounds like round_to_int8(), but to the nearest bf16 numbers, ties to even. The copy takes half
/// the bytes. Numbers beyond the largest bf16 number become that number.
void round_to_bf16(const Tensor& matrix);

}  // namespace heed
