#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "heed/core/tensor.h"

// Products in f32, or of factors in bf16, by heed's own kernels. All are cut and packed alike.

namespace heed::cpu {

/// The number of terms that are added one after the other, before their sum is added to the others.
constexpr std::int64_t depth_at_once = 256;
/// The distance between the rows (if transposed, the columns) of a packed left operand. It is not a
/// power of 2, so that they do not share sets of the cache. An operand stored with this stride is
/// multiplied in place.
constexpr std::int64_t packed_stride = depth_at_once + 16;

// Slots of thread_scratch. Attention, whose tiles are multiplied here, uses lower ones.
enum : int { block_slot = 8, panel_slot = 9 };

/// A matrix as it is stored: element (i, j) is data[i * leading + j], or data[j * leading + i] if
/// transposed.
struct MatrixView {
  const float* data;
  std::int64_t leading;
  bool transposed;

  const float* at(std::int64_t row, std::int64_t column) const {
    return data + (transposed ? column * leading + row : row * leading + column);
  }
  MatrixView from(std::int64_t row, std::int64_t column) const {
    return {at(row, column), leading, transposed};
  }
};

/// The term that is added to a product: nothing, the old contents of the result, or a bias (stride
/// 0).
struct Base {
  const float* data = nullptr;
  std::int64_t stride = 0;

  Base at(std::int64_t row, std::int64_t column) const {
    return {data ? data + row * stride + column : nullptr, stride};
  }
};

/// The parts of a product that depend on its type.
struct ProductKernel {
  std::int64_t panel_columns;
  /// Panels have a multiple of so many rows, the last of which may be padding.
  std::int64_t panel_rows;
  double nanoseconds_per_flop;  ///< about, on one thread
  /// Copies `depth` rows of b, at most depth_at_once, as panels of padded(depth) *
  /// panel_columns floats each.
  void (*pack)(const MatrixView& b, std::int64_t depth, std::int64_t columns, float* panels);
  /// Computes c = alpha a b + base, for a of m x depth and b as panels of n columns.
  void (*multiply)(const MatrixView& a, const float* panels, std::int64_t m, std::int64_t n,
                   std::int64_t depth, float alpha, const Base& base, float* c, std::int64_t stride);

  std::int64_t padded(std::int64_t depth) const { return ceil_div(depth, panel_rows) * panel_rows; }
};

/// Returns the f32 kernel for this processor's instruction set.
ProductKernel f32_kernel();
/// The kernels that multiply in bf16: by AVX-512 BF16, by AMX, and by AMX with operands as sums of two bf16.
enum class Bf16Kernel { vectors, tiles, split_tiles };
/// Returns the kernel, if this processor has the instructions.
std::optional<ProductKernel> bf16_kernel(Bf16Kernel kind);
/// Returns the kernel for the precision of the calling thread (WithMatmulPrecision).
ProductKernel product_kernel();

/// Computes c = alpha a b, or c += with `add`, on the calling thread; a is m x k, b is k x n, and
/// rows of c are `stride` apart. The bits of an element depend only on its row of a, its column of
/// b and k.
void own_gemm(const ProductKernel& kernel, const MatrixView& a, const MatrixView& b, std::int64_t m,
              std::int64_t n, std::int64_t k, float alpha, bool add, float* c, std::int64_t stride);

/// A right operand, copied once into the order in which all tasks of a product read it. It is
/// copied in slices of as many rows as fit a third-level cache.
class PackedMatrix {
 public:
  /// Allocates room for a slice.
  PackedMatrix(const ProductKernel& kernel, const MatrixView& matrix, std::int64_t rows, std::int64_t columns,
               std::int64_t slice_rows);
  std::int64_t slices() const { return ceil_div(rows_, slice_rows_); }
  /// Returns the number of tasks that pack a slice. A slice replaces the one before. It is complete
  /// after pack(slice, 0) ... pack(slice, tasks(slice) - 1), in any order, on any threads.
  std::int64_t tasks(std::int64_t slice) const;
  void pack(std::int64_t slice, std::int64_t task) const;

  /// Computes c = a b + base as own_gemm would, for b the rows [row, row + k) and columns [column,
  /// column + n) of the matrix, all in the slice that was packed last. The row is a multiple of
  /// depth_at_once, the column of 32.
  void multiply(const MatrixView& a, std::int64_t row, std::int64_t column, std::int64_t m, std::int64_t n,
                std::int64_t k, const Base& base, float* c, std::int64_t stride) const;

 private:
  static constexpr std::int64_t columns_per_task = 256;
  float* panels(std::int64_t row, std::int64_t column) const;
  std::int64_t slice_end(std::int64_t slice) const { return std::min(rows_, (slice + 1) * slice_rows_); }

  ProductKernel kernel_;
  MatrixView matrix_;
  std::int64_t rows_, columns_, slice_rows_, padded_columns_;
  Tensor panels_;  // for every depth_at_once rows of the slice their panels, one after the other
};

}  // namespace heed::cpu
