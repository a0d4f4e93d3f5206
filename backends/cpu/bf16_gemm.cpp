#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
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
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// Products of numbers in bf16, with sums in f32, by one of two instructions:
//   AVX-512 BF16 multiplies 16 pairs of bf16 and adds both products to 16 sums, twice the work of a fused
//   multiply-add; 14 x 32 sums stay in registers.
//   AMX multiplies a tile of 16 x 32 bf16 with one of 32 x 16 and adds to 16 x 16 sums in 16 cycles; four
//   tiles hold 32 x 32 sums.
// Both read operands as pairs, two neighbours along k in 32 bits:
//   a: rows of pairs;
//   b: panels of 32 columns; for each pair along k two vectors, a pair per column.
// Operands are packed to a multiple of 32 along k, with zeros. How a product is cut is as in gemm.cpp. Uses
// intrinsics, since Highway 1.0.3 does not offer the instructions.
//
// With three products of bf16, f32 keeps most of its bits. A number is the sum of its nearest bf16, `high`,
// and the bf16 nearest to the rest, `low`, to within 2^-17 of it, and
//     a b = high(a) high(b) + high(a) low(b) + low(a) high(b)
// leaves out the product of both rests, at most 2^-18 of a b (G. Henry, P. T. P. Tang, A. Heinecke, "Leveraging the
// bfloat16 artificial intelligence datatype for higher-precision computations", arXiv 1904.06376).

namespace heed {

#if defined(__x86_64__)

namespace cpu {
namespace {

// Functions compiled for these instructions must only be called where has_bf16() and has_tiles() say so.
#define HEED_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define HEED_TILES __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")))

bool has_bf16() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          cpu_info().simd_target.starts_with("AVX3");
  return has;
}

/// Asks Linux for the tiles, whose 8 KiB of registers a process must request (Documentation/arch/x86/xstate).
bool has_tiles() {
  static const bool has = [] {
    constexpr unsigned tile_instructions = 1u << 24, tile_products = 1u << 22;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, of xstate
    unsigned a = 0, b = 0, c = 0, d = 0;
    const char* const limit = std::getenv("HEED_SIMD");  // names instruction sets without tiles
    return has_bf16() && !(limit && *limit) && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (d & tile_instructions) && (d & tile_products) &&
           syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return has;
}

constexpr int left_slot = 6;  // of thread_scratch

constexpr int lanes = 16, panel_columns = 2 * lanes;
constexpr int chunk = 2 * lanes;  // of k: a vector of pairs
// Packed they take an eighth of a second-level cache of 1 MiB.
constexpr std::int64_t rows_at_once = 256;
// Distance between packed rows of a; not a power of 2, to avoid cache conflicts.
constexpr std::int64_t row_pairs = depth_at_once / 2 + lanes;
constexpr std::int64_t rows_of_pairs = rows_at_once * row_pairs;

using Pairs = std::uint32_t;

__mmask16 first(std::int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<std::int64_t>(count, 0, lanes)) - 1);
}

/// Sixteen pairs in bf16: the nearest numbers, and the rests.
struct Rounded {
  __m512i high, low;
};

/// Sixteen numbers as the sum of a bf16 in f32 and a rest. Numbers that would round to infinity are cut off
/// instead, and so is their rest; that of an infinity is 0.
struct Split {
  __m512 kept, rest;
};
HEED_BF16 inline Split split(__m512 x, __m256i nearest_bf16) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
  const __m512i nearest = _mm512_slli_epi32(_mm512_cvtepu16_epi32(nearest_bf16), 16);
  const __mmask16 overflows = _mm512_cmpeq_epi32_mask(_mm512_and_si512(nearest, magnitude), infinity);
  const __m512i upper_half = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  const auto kept = (__m512)_mm512_mask_and_epi32(nearest, overflows, (__m512i)x, upper_half);
  const __mmask16 finite = _mm512_cmplt_epu32_mask(_mm512_and_si512((__m512i)x, magnitude), infinity);
  const auto rest = (__m512i)_mm512_maskz_sub_ps(finite, x, kept);
  return {kept, (__m512)_mm512_mask_and_epi32(rest, overflows, rest, upper_half)};
}

/// Rounds 32 numbers, `one` and then `other`.
template <bool Low>
HEED_BF16 inline Rounded rounded(__m512 one, __m512 other) {
  const auto high = (__m512i)_mm512_cvtne2ps_pbh(other, one);
  if constexpr (Low) {
    const Split first = split(one, _mm512_castsi512_si256(high)),
                second = split(other, _mm512_extracti64x4_epi64(high, 1));
    return {(__m512i)_mm512_cvtne2ps_pbh(second.kept, first.kept),
            (__m512i)_mm512_cvtne2ps_pbh(second.rest, first.rest)};
  } else {
    return {high, high};
  }
}

/// Loads and rounds up to 32 floats, of which `count` exist (the rest are 0): lane i is the
/// pair (x[2 i], x[2 i + 1]).
template <bool Low>
HEED_BF16 inline Rounded pairs_along(const float* x, std::int64_t count) {
  const __mmask16 low = first(count), high = first(count - lanes);
  return rounded<Low>(low ? _mm512_maskz_loadu_ps(low, x) : _mm512_setzero_ps(),
                      high ? _mm512_maskz_loadu_ps(high, x + lanes) : _mm512_setzero_ps());
}

/// Lane i is the pair (x[i], x[stride + i]). Only `rows` rows and `columns` columns exist; the rest are 0.
template <bool Low>
HEED_BF16 inline Rounded pairs_across(const float* x, std::int64_t stride, std::int64_t rows,
                                      std::int64_t columns) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __mmask16 mask = first(columns);
  const Rounded all =
      rounded<Low>(rows > 0 && mask ? _mm512_maskz_loadu_ps(mask, x) : _mm512_setzero_ps(),
                   rows > 1 && mask ? _mm512_maskz_loadu_ps(mask, x + stride) : _mm512_setzero_ps());
  return {_mm512_permutexvar_epi16(order, all.high),
          Low ? _mm512_permutexvar_epi16(order, all.low) : all.low};
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

/// Transposes 16 vectors of pairs and stores the first `count`, `stride` apart: the high parts at `out`, the
/// low ones `between` further on.
template <bool Low>
HEED_BF16 inline void store_transposed(const Rounded (&rows)[lanes], std::int64_t count, Pairs* out,
                                       std::int64_t stride, std::int64_t between) {
  __m512i block[lanes];
  for (int part = 0; part <= static_cast<int>(Low); ++part, out += between) {
    for (int i = 0; i < lanes; ++i) block[i] = part == 0 ? rows[i].high : rows[i].low;
    transpose(block);
    for (std::int64_t i = 0; i < count; ++i) _mm512_storeu_si512(out + i * stride, block[i]);
  }
}

/// Packs `rows` x `depth` floats, stored by rows, into rows of pairs; the low parts follow the high ones.
template <bool Low>
HEED_BF16 void pack_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                         Pairs* out) {
  for (std::int64_t r = 0; r < rows; ++r, x += stride, out += row_pairs) {
    for (std::int64_t k = 0; k < depth; k += chunk) {
      const Rounded pairs = pairs_along<Low>(x + k, depth - k);
      _mm512_storeu_si512(out + k / 2, pairs.high);
      if constexpr (Low) _mm512_storeu_si512(out + rows_of_pairs + k / 2, pairs.low);
    }
  }
}

/// Packs `rows` x `depth` floats, stored by columns, into rows of pairs.
template <bool Low>
HEED_BF16 void pack_turned_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                                Pairs* out) {
  for (std::int64_t k = 0; k < depth; k += chunk) {
    for (std::int64_t r = 0; r < rows; r += lanes) {  // along the rows of memory
      Rounded block[lanes];
      for (int i = 0; i < lanes; ++i) {
        const float* const both = x + (k + 2 * i) * stride + r;
        if constexpr (Low) {  // with as many streams as rows, the processor does not do this by itself
          _mm_prefetch(both + lanes, _MM_HINT_T0);
          _mm_prefetch(both + stride + lanes, _MM_HINT_T0);
        }
        block[i] = pairs_across<Low>(both, stride, depth - k - 2 * i, rows - r);
      }
      store_transposed<Low>(block, std::min<std::int64_t>(lanes, rows - r), out + r * row_pairs + k / 2,
                            row_pairs, rows_of_pairs);
    }
  }
}

/// The pairs of a panel, with zeros up to a whole chunk.
constexpr std::int64_t panel_pairs(std::int64_t depth) {
  return ceil_div(depth, chunk) * chunk / 2 * panel_columns;
}

/// Packs `depth` x `columns` floats, stored by rows, into a panel; the low parts follow the high ones.
template <bool Low>
HEED_BF16 void pack_panel(const float* x, std::int64_t stride, std::int64_t depth, std::int64_t columns,
                          Pairs* out) {
  const std::int64_t between = panel_pairs(depth);
  for (Pairs* const end = out + between; out < end; depth -= 2, x += 2 * stride, out += panel_columns) {
    for (int v = 0; v < panel_columns; v += lanes) {
      const Rounded pairs = pairs_across<Low>(x + v, stride, depth, columns - v);
      _mm512_store_si512(out + v, pairs.high);
      if constexpr (Low) _mm512_store_si512(out + between + v, pairs.low);
    }
  }
}

/// Packs `depth` x `columns` floats, stored by columns, into a panel.
template <bool Low>
HEED_BF16 void pack_turned_panel(const float* x, std::int64_t stride, std::int64_t depth,
                                 std::int64_t columns, Pairs* out) {
  for (std::int64_t c = 0; c < panel_columns; c += lanes) {
    for (std::int64_t k = 0; k < depth; k += chunk) {
      Rounded block[lanes];
      for (int i = 0; i < lanes; ++i)
        block[i] = pairs_along<Low>(x + (c + i) * stride + k, c + i < columns ? depth - k : 0);
      store_transposed<Low>(block, lanes, out + k / 2 * panel_columns + c, panel_columns, panel_pairs(depth));
    }
  }
}

template <bool Low>
void pack_panels(const MatrixView& b, std::int64_t depth, std::int64_t columns, float* panels) {
  auto* pairs = reinterpret_cast<Pairs*>(panels);
  for (std::int64_t j = 0; j < columns; j += panel_columns, pairs += 2 * panel_pairs(depth)) {
    const std::int64_t width = std::min<std::int64_t>(panel_columns, columns - j);
    b.transposed ? pack_turned_panel<Low>(b.at(0, j), b.leading, depth, width, pairs)
                 : pack_panel<Low>(b.at(0, j), b.leading, depth, width, pairs);
  }
}

/// A packed block of a, a packed panel of b, and the part of c that their product belongs to.
struct Block {
  const Pairs* a;
  const Pairs* b;
  std::int64_t depth, rows, columns;
  float alpha;
  Base base;
  float* c;
  std::int64_t stride;
};

/// Writes alpha sum + base to a vector of a row of c.
HEED_BF16 inline void store_row(const Block& block, std::int64_t row, int vector, __m512 sum) {
  const __mmask16 mask = first(block.columns - vector * lanes);
  sum = _mm512_mul_ps(sum, _mm512_set1_ps(block.alpha));
  if (block.base.data)
    sum = _mm512_add_ps(
        sum, _mm512_maskz_loadu_ps(mask, block.base.data + row * block.base.stride + vector * lanes));
  _mm512_mask_storeu_ps(block.c + row * block.stride + vector * lanes, mask, sum);
}

// --- AVX-512 BF16 ---

constexpr int tile_rows = 14;

template <int Rows, int Vectors>
HEED_BF16 void multiply_rows(const Block& block) {
  __m512 sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) sums[r][v] = _mm512_setzero_ps();
  const Pairs* b = block.b;
  for (std::int64_t p = 0; p < ceil_div(block.depth, 2); ++p, b += panel_columns) {
    __m512i columns[Vectors];
    for (int v = 0; v < Vectors; ++v) columns[v] = _mm512_load_si512(b + v * lanes);
    for (int r = 0; r < Rows; ++r) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(block.a[r * row_pairs + p]));
      for (int v = 0; v < Vectors; ++v)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)row, (__m512bh)columns[v]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) store_row(block, r, v, sums[r][v]);
}

using BlockFunction = void (*)(const Block& block);

template <int Vectors, int... Rows>
constexpr std::array<BlockFunction, tile_rows> row_functions(std::integer_sequence<int, Rows...>) {
  return {multiply_rows<Rows + 1, Vectors>...};
}

/// Functions for 1 to 14 rows and one or two vectors.
constexpr std::array<std::array<BlockFunction, tile_rows>, 2> functions{
    row_functions<1>(std::make_integer_sequence<int, tile_rows>()),
    row_functions<2>(std::make_integer_sequence<int, tile_rows>())};

/// The products of all blocks of a and panels of b.
struct VectorProducts {
  static constexpr bool has_low = false;
  static constexpr int block_rows = tile_rows;

  static void multiply(const Block& block) {
    functions[block.columns > lanes][static_cast<std::size_t>(block.rows - 1)](block);
  }
};

// --- AMX ---

/// 16 rows of 64 bytes in each of the eight tiles. The ends of matrices are computed with what lies behind
/// them, which changes no sum that is stored: rows of a and columns of b do not mix.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes tile_shapes;

// Tiles 0 to 3 are the quarters of 32 x 32 sums, 4 and 5 the upper and lower half of a, 6 and 7 the left and
// right half of b. Halves that do not exist are left out.
// With two parts, a streams past a panel of b that fills two thirds of the first-level cache.
template <int Halves, bool Streams>
HEED_TILES inline void load_left(const Pairs* a) {
  constexpr std::int64_t stride = row_pairs * sizeof(Pairs);
  if constexpr (Streams) {
    _tile_stream_loadd(4, a, stride);
    if constexpr (Halves == 2) _tile_stream_loadd(5, a + lanes * row_pairs, stride);
  } else {
    _tile_loadd(4, a, stride);
    if constexpr (Halves == 2) _tile_loadd(5, a + lanes * row_pairs, stride);
  }
}
template <int Halves>
HEED_TILES inline void load_right(const Pairs* b) {
  _tile_loadd(6, b, panel_columns * sizeof(Pairs));
  if constexpr (Halves == 2) _tile_loadd(7, b + lanes, panel_columns * sizeof(Pairs));
}
template <int Down, int Across>
HEED_TILES inline void multiply_halves() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (Across == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (Down == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (Down == 2 && Across == 2) _tile_dpbf16ps(3, 5, 7);
}

/// 32 x 32 sums in memory, rows `stride` apart.
struct Sums {
  float* data;
  std::int64_t stride;
};

template <int Down, int Across>
HEED_TILES inline void start_sums(const Base& base) {
  if (!base.data) {
    _tile_zero(0);
    if constexpr (Across == 2) _tile_zero(1);
    if constexpr (Down == 2) _tile_zero(2);
    if constexpr (Down == 2 && Across == 2) _tile_zero(3);
    return;
  }
  const auto stride = static_cast<std::int64_t>(base.stride * sizeof(float));
  _tile_loadd(0, base.data, stride);
  if constexpr (Across == 2) _tile_loadd(1, base.at(0, lanes).data, stride);
  if constexpr (Down == 2) _tile_loadd(2, base.at(lanes, 0).data, stride);
  if constexpr (Down == 2 && Across == 2) _tile_loadd(3, base.at(lanes, lanes).data, stride);
}

template <int Down, int Across>
HEED_TILES inline void store_sums(const Sums& sums) {
  const auto stride = static_cast<std::int64_t>(sums.stride * sizeof(float));
  float* const lower = sums.data + lanes * sums.stride;
  _tile_stored(0, sums.data, stride);
  if constexpr (Across == 2) _tile_stored(1, sums.data + lanes, stride);
  if constexpr (Down == 2) _tile_stored(2, lower, stride);
  if constexpr (Down == 2 && Across == 2) _tile_stored(3, lower + lanes, stride);
}

/// sums = base + a b
template <bool Low, int Down, int Across>
HEED_TILES void multiply_tiles(const Block& block, const Base& base, const Sums& sums) {
  start_sums<Down, Across>(base);
  const Pairs *a = block.a, *b = block.b;
  const std::int64_t low = panel_pairs(block.depth);
  for (std::int64_t k = 0; k < block.depth; k += chunk, a += chunk / 2, b += chunk / 2 * panel_columns) {
    load_right<Across>(b);
    if constexpr (Low) {  // the small terms first
      load_left<Down, Low>(a + rows_of_pairs);
      multiply_halves<Down, Across>();
    }
    load_left<Down, Low>(a);
    multiply_halves<Down, Across>();
    if constexpr (Low) {
      load_right<Across>(b + low);
      multiply_halves<Down, Across>();
    }
  }
  store_sums<Down, Across>(sums);
}

float part(const Pairs* pairs, std::int64_t k) {
  return bf16_to_float(static_cast<std::uint16_t>(pairs[0] >> (k % 2 * 16)));
}

/// sum + a b of an element in f32, where the parts of an infinity, or of numbers near the largest, have made
/// a NaN.
float sum_again(const Block& block, std::int64_t row, std::int64_t column, float sum) {
  const std::int64_t low = panel_pairs(block.depth);
  for (std::int64_t k = 0; k < block.depth; ++k) {
    const Pairs* const a = block.a + row * row_pairs + k / 2;
    const Pairs* const b = block.b + k / 2 * panel_columns + column;
    sum += (part(a, k) + part(a + rows_of_pairs, k)) * (part(b, k) + part(b + low, k));
  }
  return sum;
}

template <bool Low>
struct TileProducts {
  static constexpr bool has_low = Low;
  static constexpr int block_rows = 2 * lanes;

  HEED_TILES static void multiply(const Block& block) {
    const bool down = block.rows > lanes, across = block.columns > lanes;
    if (!Low && block.rows == block_rows && block.columns == panel_columns && block.alpha == 1)
      return multiply_tiles<Low, 2, 2>(block, block.base, {block.c, block.stride});
    alignas(64) float memory[block_rows * panel_columns];
    const Sums sums{memory, panel_columns};
    const bool starts = block.base.data && block.alpha == 1;
    if (starts) copy_base(block, sums);
    const auto tiles = down ? (across ? multiply_tiles<Low, 2, 2> : multiply_tiles<Low, 2, 1>)
                            : (across ? multiply_tiles<Low, 1, 2> : multiply_tiles<Low, 1, 1>);
    tiles(block, starts ? Base{sums.data, sums.stride} : Base(), sums);
    if constexpr (Low) replace_nan(block, starts, sums);
    Block rest = block;
    if (starts) rest.base = {};
    for (std::int64_t r = 0; r < block.rows; ++r)
      for (int v = 0; v <= static_cast<int>(across); ++v)
        store_row(rest, r, v, _mm512_load_ps(sums.data + r * sums.stride + v * lanes));
  }

 private:
  HEED_TILES static void copy_base(const Block& block, const Sums& sums) {
    for (std::int64_t r = 0; r < block.rows; ++r)
      for (int v = 0; v < 2; ++v)
        _mm512_store_ps(sums.data + r * sums.stride + v * lanes,
                        _mm512_maskz_loadu_ps(first(block.columns - v * lanes),
                                              block.base.data + r * block.base.stride + v * lanes));
  }

  HEED_TILES static void replace_nan(const Block& block, bool starts, const Sums& sums) {
    for (std::int64_t r = 0; r < block.rows; ++r) {
      for (int v = 0; v < 2; ++v) {
        float* const at = sums.data + r * sums.stride + v * lanes;
        const __m512 sum = _mm512_load_ps(at);
        unsigned nan = _mm512_mask_cmp_ps_mask(first(block.columns - v * lanes), sum, sum, _CMP_UNORD_Q);
        for (; nan; nan &= nan - 1) {
          const int lane = __builtin_ctz(nan);
          const std::int64_t column = v * lanes + lane;
          at[lane] = sum_again(block, r, column, starts ? *block.base.at(r, column).data : 0.0f);
        }
      }
    }
  }
};

// --- all blocks ---

template <class Products>
void multiply_panels(const MatrixView& a, const float* panels, std::int64_t m, std::int64_t n,
                     std::int64_t depth, float alpha, const Base& base, float* c, std::int64_t stride) {
  constexpr bool low = Products::has_low;
  auto* const rows = thread_scratch<Pairs>(left_slot, static_cast<std::size_t>((1 + low) * rows_of_pairs));
  constexpr std::int64_t most_rows = rows_at_once / Products::block_rows * Products::block_rows;
  for (std::int64_t i = 0; i < m; i += most_rows) {
    const std::int64_t height = std::min(most_rows, m - i);
    a.transposed ? pack_turned_rows<low>(a.at(i, 0), a.leading, height, depth, rows)
                 : pack_rows<low>(a.at(i, 0), a.leading, height, depth, rows);
    for (std::int64_t j = 0; j < n; j += panel_columns) {
      const auto* const panel =
          reinterpret_cast<const Pairs*>(panels) + j / panel_columns * 2 * panel_pairs(depth);
      for (std::int64_t r = 0; r < height; r += Products::block_rows)
        Products::multiply({rows + r * row_pairs, panel, depth,
                            std::min<std::int64_t>(Products::block_rows, height - r),
                            std::min<std::int64_t>(panel_columns, n - j), alpha, base.at(i + r, j),
                            c + (i + r) * stride + j, stride});
    }
  }
}

template <bool Low>
HEED_TILES void multiply_in_tiles(const MatrixView& a, const float* panels, std::int64_t m, std::int64_t n,
                                  std::int64_t depth, float alpha, const Base& base, float* c,
                                  std::int64_t stride) {
  _tile_loadconfig(&tile_shapes);
  multiply_panels<TileProducts<Low>>(a, panels, m, n, depth, alpha, base, c, stride);
  _tile_release();
}

}  // namespace

std::optional<ProductKernel> bf16_kernel(Bf16Kernel kind) {
  constexpr double gigaflops_of_vectors = 300, gigaflops_of_tiles = 1200, gigaflops_of_split = 400;
  switch (kind) {
    case Bf16Kernel::vectors:
      if (!has_bf16()) return {};
      return ProductKernel{panel_columns, chunk, 1 / gigaflops_of_vectors, pack_panels<false>,
                           multiply_panels<VectorProducts>};
    case Bf16Kernel::tiles:
      if (!has_tiles()) return {};
      return ProductKernel{panel_columns, chunk, 1 / gigaflops_of_tiles, pack_panels<false>,
                           multiply_in_tiles<false>};
    case Bf16Kernel::split_tiles:
      if (!has_tiles()) return {};
      return ProductKernel{panel_columns, chunk, 1 / gigaflops_of_split, pack_panels<true>,
                           multiply_in_tiles<true>};
  }
  fail("there is no such kernel");
}

/// On Intel's processors AVX-512 BF16 takes longer than f32; on AMD's it takes about half the time.
static bool vectors_pay() {
  return __builtin_cpu_is("amd");
}

}  // namespace cpu

#else

namespace cpu {

std::optional<ProductKernel> bf16_kernel(Bf16Kernel) {
  return {};
}

static bool vectors_pay() {
  return false;
}

}  // namespace cpu

#endif

/// The kernel of a lower precision, if one is faster than f32 here.
static std::optional<cpu::ProductKernel> faster_kernel(MatmulPrecision precision) {
  if (precision == MatmulPrecision::high) return cpu::bf16_kernel(cpu::Bf16Kernel::split_tiles);
  const std::optional<cpu::ProductKernel> tiles = cpu::bf16_kernel(cpu::Bf16Kernel::tiles);
  return tiles || !cpu::vectors_pay() ? tiles : cpu::bf16_kernel(cpu::Bf16Kernel::vectors);
}

bool is_fast(MatmulPrecision precision) {
  return precision == MatmulPrecision::highest || faster_kernel(precision).has_value();
}

std::string matmul_instructions(MatmulPrecision precision) {
  if (precision == MatmulPrecision::highest || !is_fast(precision)) return {};
  return cpu::bf16_kernel(cpu::Bf16Kernel::tiles) ? "AMX" : "AVX-512 BF16";
}

cpu::ProductKernel cpu::product_kernel() {
  return WithMatmulPrecision::is_lower() ? *faster_kernel(WithMatmulPrecision::active()) : f32_kernel();
}

}  // namespace heed
