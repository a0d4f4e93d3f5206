#pragma once

#include <cstdint>
#include <string>

namespace heed {
struct NarrowRows;
}

namespace heed::cpu {

/// Computes c = alpha op(a) op(b) + beta c, row-major, on the calling thread only; T is float or
/// double. op(a) is m x k: a is stored [m, k], or [k, m] if trans_a. op(b) is k x n: b is stored
/// [k, n], or [n, k] if trans_b. ld* are row strides. beta is 0 or 1; with 0 the old contents of c
/// are ignored, NaN included.
///
/// f32 is multiplied by own_gemm (gemm.h), unless own_products() is false; f64 is multiplied by
/// OpenBLAS, which the first call loads. Throws an Error if OpenBLAS cannot be loaded or an extent
/// exceeds its 2^31 - 1, OutOfMemory if the working memory does not fit.
template <class T>
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc);

/// Returns whether own_gemm multiplies f32: always, unless the environment variable HEED_PRODUCTS
/// is "openblas". Throws an Error for values other than "openblas", "own" and "".
bool own_products();

// Products with a few rows, for decoding one token at a time, where a general matrix product would spend
// its time on packing. T is float or double.

/// A product out[r, j] = factor * sum over c of x[r, c] matrix[j, c] + (add ? out[r, j] : 0) for
/// `count` rows of x and `rows` of a matrix, both of `columns` elements. The bits of a row of out
/// do not depend on the others.
template <class T>
struct FewRows {
  const T* x;
  std::int64_t x_stride, count, rows, columns;
  T factor;
  bool add;
  T* out;
  std::int64_t out_stride;
};

/// The kernels that are compiled for each instruction set.
template <class T>
struct RowProducts {
  void (*times_transposed)(const FewRows<T>& product, const T* matrix, std::int64_t stride);
  /// Computes out[c] = (add ? out[c] : 0) + sum over j of weights[j] matrix[j, c].
  void (*row_times_matrix)(const T* weights, const T* matrix, std::int64_t stride, std::int64_t rows,
                           std::int64_t columns, bool add, T* out);
};
/// Returns the kernels of this processor.
template <class T>
RowProducts<T> row_products();

/// Computes times_transposed with narrow rows, from element `at` on.
void times_narrow_rows(const FewRows<float>& product, const NarrowRows& matrix, std::int64_t at);

/// The tasks into which a batch of products [m, k] x [k, n] is cut: a grid of tiles of C, and
/// pieces of k that are summed separately. They depend only on the shape, so the result has the
/// same bits for any number of threads.
struct MatmulPlan {
  std::int64_t tile_rows, tile_columns;
  std::int64_t rows = 1, columns = 1;  ///< tiles of C
  std::int64_t parts = 1;              ///< pieces of k
  std::int64_t part_depth;             ///< length of all pieces but the last
  std::int64_t tiles_at_once = 1;      ///< tiles per task of the pool, more than 1 if small
  /// The number of rows of the right operand that are packed at a time, for all tiles; 0 if each
  /// tile packs its part.
  std::int64_t slice_depth = 0;
  std::int64_t tiles() const;
  std::int64_t tasks() const;

  /// Makes the plan. All extents must be positive, but k may be 0. With `may_pack`, the right
  /// operand of a single product can be packed once. `per_flop`: nanoseconds on one thread.
  MatmulPlan(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool may_pack,
             double per_flop);

 private:
  void cut_matrix(std::int64_t slice);
  void cut_vector();
  void set(std::int64_t tile_rows, std::int64_t tile_columns, std::int64_t part_depth);
  /// Estimated nanoseconds on one thread, plus a penalty for waiting for the last tiles.
  double cost() const;

  std::int64_t batch, m, n, k;
  double per_flop;
};

}  // namespace heed::cpu
