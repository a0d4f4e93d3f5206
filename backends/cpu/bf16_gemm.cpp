#include "heed/backends/cpu/blas.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "heed/backends/cpu/gemm.h"
#include "heed/base/error.h"
#include "heed/core/device.h"
#include "heed/core/low_precision.h"
#include "heed/core/thread_pool.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // from GCC 12's own header: bug 105593
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#endif

// One AVX-512 BF16 instruction multiplies 16 pairs of bf16 and adds both products to 16 sums, twice the
// work of a fused multiply-add. So operands are stored as pairs, two neighbours along k in 32 bits:
//   a: rows of pairs; each is broadcast to a vector;
//   b: panels of 32 columns; for each pair along k two vectors, a pair per column.
// 14 x 32 sums stay in registers. How a product is cut is as in gemm.cpp. Uses intrinsics, since Highway
// 1.0.3 does not offer the instruction.

namespace heed {

namespace cpu {
namespace {

enum : int { left_slot = 6, right_slot = 7 };  // of thread_scratch

/// Rounds to the nearest bf16, ties to even; magnitudes below 2^-126 become 0.
float rounded(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? 0 : bf16_to_float(float_to_bf16(x));
}

/// Rounds a matrix, into scratch memory without space between rows.
const float* rounded(int slot, const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  auto* const out = thread_scratch<float>(slot, static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r)
    std::transform(x + r * stride, x + r * stride + columns, out + r * columns,
                   [](float each) { return rounded(each); });
  return out;
}

}  // namespace

void bf16_gemm_by_rounding(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
                           float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                           bool add, float* c, std::int64_t ldc) {
  const std::int64_t a_columns = trans_a ? m : k, b_columns = trans_b ? k : n;
  const float* const left = rounded(left_slot, a, lda, trans_a ? k : m, a_columns);
  const float* const right = rounded(right_slot, b, ldb, trans_b ? n : k, b_columns);
  const Bf16Products exact(false);
  gemm<float>(trans_a, trans_b, m, n, k, alpha, left, a_columns, right, b_columns, add ? 1 : 0, c, ldc);
}

}  // namespace cpu

#if defined(__x86_64__)

bool Bf16Products::available() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          cpu_info().simd_target.starts_with("AVX3");
  return has;
}

namespace cpu {
namespace {

// Functions compiled for these instructions must only be called if available() is true.
#define HEED_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

constexpr int lanes = 16, tile_rows = 14, panel_columns = 2 * lanes;
constexpr int chunk = 2 * lanes;  // of k: a vector of pairs
// Packed they take an eighth of a second-level cache of 1 MiB.
constexpr std::int64_t rows_at_once = 18 * tile_rows;
// Distance between packed rows of a; not a power of 2, to avoid cache conflicts.
constexpr std::int64_t row_pairs = depth_at_once / 2 + lanes;

using Pairs = std::uint32_t;

__mmask16 first(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, lanes)) - 1);
}

/// Loads and rounds up to 32 floats, of which `count` exist (the rest are 0): lane i is the
/// pair (x[2 i], x[2 i + 1]).
HEED_BF16 inline __m512i pairs_along(const float* x, std::int64_t count) {
  const __mmask16 low = first(count), high = first(count - lanes);
  const __m512 more = high ? _mm512_maskz_loadu_ps(high, x + lanes) : _mm512_setzero_ps();
  return (__m512i)_mm512_cvtne2ps_pbh(more, _mm512_maskz_loadu_ps(low, x));
}

/// Lane i is the pair (x[i], x[stride + i]). Only `rows` rows and `columns` columns exist; the rest are 0.
HEED_BF16 inline __m512i pairs_across(const float* x, std::int64_t stride, std::int64_t rows,
                                      std::int64_t columns) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __mmask16 mask = first(columns);
  const __m512 one = rows > 0 && mask ? _mm512_maskz_loadu_ps(mask, x) : _mm512_setzero_ps();
  const __m512 other = rows > 1 && mask ? _mm512_maskz_loadu_ps(mask, x + stride) : _mm512_setzero_ps();
  return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(other, one));
}

/// Transposes 16 x 16 elements of 32 bits: in 2 x 2 blocks first of elements, then of pairs,
/// then twice of vector quarters.
HEED_BF16 inline void transpose(__m512i (&x)[lanes]) {
  __m512i y[lanes];
  for (int i = 0; i < lanes; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < lanes; i += 4) {
    for (int j = 0; j < 2; ++j) {
      x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + 2 + j]);
      x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + 2 + j]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < lanes; j += 8) {
      y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0x88);
      y[i + j + 4] = _mm512_shuffle_i32x4(x[i + j], x[i + j + 4], 0xdd);
    }
  }
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
  }
}

/// Packs `rows` x `depth` floats, stored by rows, into rows of pairs.
HEED_BF16 void pack_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                         Pairs* out) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride, out += row_pairs)
    for (std::int64_t k = 0; k < depth; k += chunk)
      _mm512_storeu_si512(out + k / 2, pairs_along(x + k, depth - k));
}

/// Packs `rows` x `depth` floats, stored by columns, into rows of pairs.
HEED_BF16 void pack_turned_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                                Pairs* out) {
  for (std::int64_t r = 0; r < rows; r += lanes) {
    for (std::int64_t k = 0; k < depth; k += chunk) {
      __m512i block[lanes];
      for (int i = 0; i < lanes; ++i)
        block[i] = pairs_across(x + (k + 2 * i) * stride + r, stride, depth - k - 2 * i, rows - r);
      transpose(block);
      const std::int64_t count = std::min<std::int64_t>(lanes, rows - r);
      for (std::int64_t i = 0; i < count; ++i)
        _mm512_storeu_si512(out + (r + i) * row_pairs + k / 2, block[i]);
    }
  }
}

/// Packs `depth` x `columns` floats, stored by rows, into a panel.
HEED_BF16 void pack_panel(const float* x, std::int64_t stride, std::int64_t depth, std::int64_t columns,
                          Pairs* out) {
  for (std::int64_t k = 0; k < depth; k += 2, x += 2 * stride, out += panel_columns) {
    _mm512_store_si512(out, pairs_across(x, stride, depth - k, columns));
    _mm512_store_si512(out + lanes, pairs_across(x + lanes, stride, depth - k, columns - lanes));
  }
}

/// Packs `depth` x `columns` floats, stored by columns, into a panel.
HEED_BF16 void pack_turned_panel(const float* x, std::int64_t stride, std::int64_t depth,
                                 std::int64_t columns, Pairs* out) {
  for (std::int64_t c = 0; c < panel_columns; c += lanes) {
    for (std::int64_t k = 0; k < depth; k += chunk) {
      __m512i block[lanes];
      for (int i = 0; i < lanes; ++i)
        block[i] =
            c + i < columns ? pairs_along(x + (c + i) * stride + k, depth - k) : _mm512_setzero_si512();
      transpose(block);
      const std::int64_t count = std::min<std::int64_t>(lanes, ceil_div(depth - k, 2));
      for (std::int64_t i = 0; i < count; ++i)
        _mm512_store_si512(out + (k / 2 + i) * panel_columns + c, block[i]);
    }
  }
}

/// c = alpha a b + base for Rows rows and Vectors vectors of columns; `last` masks the last vector.
template <int Rows, int Vectors>
HEED_BF16 void multiply_tile(const Pairs* a, const Pairs* b, std::int64_t pairs, float alpha, Base base,
                             float* c, std::int64_t stride, __mmask16 last) {
  __m512 sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) sums[r][v] = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < pairs; ++p, b += panel_columns) {
    __m512i columns[Vectors];
    for (int v = 0; v < Vectors; ++v) columns[v] = _mm512_load_si512(b + v * lanes);
    for (int r = 0; r < Rows; ++r) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(a[r * row_pairs + p]));
      for (int v = 0; v < Vectors; ++v)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)row, (__m512bh)columns[v]);
    }
  }
  for (int r = 0; r < Rows; ++r, c += stride) {
    for (int v = 0; v < Vectors; ++v) {
      const __mmask16 mask = v + 1 == Vectors ? last : first(lanes);
      __m512 sum = _mm512_mul_ps(sums[r][v], _mm512_set1_ps(alpha));
      if (base.data)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, base.data + r * base.stride + v * lanes));
      _mm512_mask_storeu_ps(c + v * lanes, mask, sum);
    }
  }
}

using TileFunction = decltype(&multiply_tile<1, 1>);

template <int Vectors, int... Rows>
constexpr std::array<TileFunction, tile_rows> tile_functions(std::integer_sequence<int, Rows...>) {
  return {multiply_tile<Rows + 1, Vectors>...};
}

/// Functions for 1 to 14 rows and one or two vectors.
constexpr std::array<std::array<TileFunction, tile_rows>, 2> tiles{
    tile_functions<1>(std::make_integer_sequence<int, tile_rows>()),
    tile_functions<2>(std::make_integer_sequence<int, tile_rows>())};

void pack_panels(const MatrixView& b, std::int64_t depth, std::int64_t columns, float* panels) {
  for (std::int64_t j = 0; j < columns; j += panel_columns, panels += depth * panel_columns) {
    const std::int64_t width = std::min<std::int64_t>(panel_columns, columns - j);
    auto* const pairs = reinterpret_cast<Pairs*>(panels);
    b.transposed ? pack_turned_panel(b.at(0, j), b.leading, depth, width, pairs)
                 : pack_panel(b.at(0, j), b.leading, depth, width, pairs);
  }
}

void multiply_panels(const MatrixView& a, const float* panels, std::int64_t m, std::int64_t n,
                     std::int64_t depth, float alpha, const Base& base, float* c, std::int64_t stride) {
  auto* const rows =
      thread_scratch<Pairs>(left_slot, static_cast<std::size_t>(std::min(m, rows_at_once) * row_pairs));
  for (std::int64_t i = 0; i < m; i += rows_at_once) {
    const std::int64_t height = std::min(rows_at_once, m - i);
    a.transposed ? pack_turned_rows(a.at(i, 0), a.leading, height, depth, rows)
                 : pack_rows(a.at(i, 0), a.leading, height, depth, rows);
    for (std::int64_t j = 0; j < n; j += panel_columns) {
      const std::int64_t width = std::min<std::int64_t>(panel_columns, n - j);
      const auto* const panel = reinterpret_cast<const Pairs*>(panels + j * depth);
      const auto& of_width = tiles[width > lanes];
      const __mmask16 last = first(width > lanes ? width - lanes : width);
      for (std::int64_t r = 0; r < height; r += tile_rows) {
        const auto count = static_cast<std::size_t>(std::min<std::int64_t>(tile_rows, height - r));
        of_width[count - 1](rows + r * row_pairs, panel, ceil_div(depth, 2), alpha, base.at(i + r, j),
                            c + (i + r) * stride + j, stride, last);
      }
    }
  }
}

}  // namespace

ProductKernel bf16_kernel() {
  check(Bf16Products::available(), "this processor has no instructions for bf16");
  return {panel_columns, pack_panels, multiply_panels};
}

}  // namespace cpu

#else

bool Bf16Products::available() {
  return false;
}

cpu::ProductKernel cpu::bf16_kernel() {
  fail("this processor has no instructions for bf16");
}

#endif

}  // namespace heed
