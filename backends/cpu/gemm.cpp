#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <utility>

#include "heed/backends/cpu/gemm.h"
#include "heed/base/error.h"
#include "heed/core/thread_pool.h"

// Products in f32. A tile of C, 14 x 32 elements with AVX-512 and 6 x 16 with AVX2, stays in registers
// while one row after the other of a panel of B is multiplied with a column of A, element by element:
//
//              B: a panel of 32 columns
//              [ ---- row p ---- ]          C(r, :) += A(r, p) B(p, :)
//     A [ . p . ]  x
//       [ . p . ]       C tile              28 multiply-adds for 2 vectors of B and 14 elements of A
//
// Both operands are copied ("packed") first, into the order in which they are read:
//
//     what is copied                      how much                     where it should stay
//     a panel of B                        256 x 32: 32 KiB             first-level cache, for all rows of A
//     a block of A, as it is stored       126 x 256: 134 KiB           second-level cache, for all panels
//     B as panels, one after the other    256 x n at a time            third-level cache or memory
//
// (K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.) A sum over k is
// made in order within each 256 terms, which are then added to C: so an element has the same bits however C
// is cut, and on all processors with multiply-add instructions.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, once per target:
#include "heed/backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {
namespace {

using Floats = hn::ScalableTag<float>;

constexpr std::int64_t lanes = hn::MaxLanes(Floats()), panel_columns = 2 * lanes;
// The sums that leave enough registers for the rest: 28 of 32, or 12 of 16.
constexpr int tile_rows = lanes == 16 ? 14 : HWY_ARCH_ARM ? 12 : 6;
constexpr std::int64_t rows_at_once = 126;

/// Copies rows, and zeros behind them up to a whole vector: AVX2 is slow at writing a part of one.
HWY_INLINE void copy_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                          float* out, std::int64_t out_stride) {
  const Floats d;
  for (std::int64_t r = 0; r < rows; ++r, x += stride, out += out_stride)
    for_each_vector(d, columns,
                    [&](auto part, std::int64_t i) HWY_ATTR { hn::StoreU(part.load(d, x + i), d, out + i); });
}

/// Where the elements of a packed block of A are. It stays as it was stored, by rows or by columns: either
/// way elements are read one by one, and a copy is cheaper than a transposition.
template <bool ByColumns>
constexpr std::int64_t between_rows = ByColumns ? 1 : packed_stride;
template <bool ByColumns>
constexpr std::int64_t between_columns = ByColumns ? packed_stride : 1;

/// c = alpha a b + base for Rows rows and Vectors vectors of columns, the last with `last` lanes.
template <bool ByColumns, int Rows, int Vectors>
void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t depth, float alpha,
                   Base base, float* c, std::int64_t stride, std::int64_t last) {
  const Floats d;
  hn::Vec<Floats> sums[Rows * Vectors];
  const auto each = [&](auto body) HWY_ATTR {
    unrolled<Rows>([&](auto r) HWY_ATTR { unrolled<Vectors>([&](auto v) HWY_ATTR { body(r, v); }); });
  };
  each([&](auto r, auto v) HWY_ATTR { sums[r * Vectors + v] = hn::Zero(d); });
  for (std::int64_t p = 0; p < depth; ++p, b += panel_columns) {
    hn::Vec<Floats> columns[Vectors];
    unrolled<Vectors>([&](auto v) HWY_ATTR { columns[v] = hn::Load(d, b + v * lanes); });
    unrolled<Rows>([&](auto r) HWY_ATTR {
      const auto element = hn::Set(d, a[r * between_rows<ByColumns> + p * between_columns<ByColumns>]);
      unrolled<Vectors>([&](auto v) HWY_ATTR {
        sums[r * Vectors + v] = hn::MulAdd(element, columns[v], sums[r * Vectors + v]);
      });
    });
  }
  const auto factor = hn::Set(d, alpha);
  const auto finish = [&](auto part, auto r, auto v) HWY_ATTR {
    auto sum = hn::Mul(sums[r * Vectors + v], factor);
    if (base.data) sum = hn::Add(sum, part.load(d, base.data + r * base.stride + v * lanes));
    part.store(sum, d, c + r * stride + v * lanes);
  };
  if (last == lanes) {
    each([&](auto r, auto v) HWY_ATTR { finish(Whole(), r, v); });
  } else {
    unrolled<Rows>([&](auto r) HWY_ATTR {
      unrolled<Vectors - 1>([&](auto v) HWY_ATTR { finish(Whole(), r, v); });
      finish(Rest{last}, r, std::integral_constant<int, Vectors - 1>());
    });
  }
}

using TileFunction = decltype(&multiply_tile<false, 1, 1>);

template <bool ByColumns, int Vectors, int... Rows>
constexpr std::array<TileFunction, tile_rows> tile_functions(std::integer_sequence<int, Rows...>) {
  return {multiply_tile<ByColumns, Rows + 1, Vectors>...};
}

/// Functions for up to tile_rows rows and one or two vectors.
template <bool ByColumns>
constexpr std::array<std::array<TileFunction, tile_rows>, 2> tiles{
    tile_functions<ByColumns, 1>(std::make_integer_sequence<int, tile_rows>()),
    tile_functions<ByColumns, 2>(std::make_integer_sequence<int, tile_rows>())};

/// A block of A with packed_stride: itself, or a copy.
const float* pack_block(const MatrixView& a, std::int64_t height, std::int64_t depth) {
  if (a.leading == packed_stride) return a.data;
  auto* const block =
      thread_scratch<float>(block_slot, static_cast<std::size_t>(depth_at_once * packed_stride));
  a.transposed ? copy_rows(a.data, a.leading, depth, height, block, packed_stride)
               : copy_rows(a.data, a.leading, height, depth, block, packed_stride);
  return block;
}

/// A packed block of A times packed panels of B.
template <bool ByColumns>
void multiply_block(const float* a, const float* panels, std::int64_t height, std::int64_t width,
                    std::int64_t depth, float alpha, const Base& base, float* c, std::int64_t stride) {
  // Strips of equal height, so that none is a thin remainder.
  const std::int64_t rows = ceil_div(height, ceil_div(height, tile_rows));
  for (std::int64_t j = 0; j < width; j += panel_columns, panels += depth * panel_columns) {
    const std::int64_t columns = std::min(panel_columns, width - j);
    const auto& functions = tiles<ByColumns>[columns > lanes];
    for (std::int64_t i = 0; i < height; i += rows) {
      const std::int64_t count = std::min(rows, height - i);
      float* const to = c + i * stride + j;
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t line = 0; line < columns; line += 16) hwy::Prefetch(to + r * stride + line);
      functions[static_cast<std::size_t>(count - 1)](a + i * between_rows<ByColumns>, panels, depth, alpha,
                                                     base.at(i, j), to, stride,
                                                     columns > lanes ? columns - lanes : columns);
    }
  }
}

void pack_panels(const MatrixView& b, std::int64_t depth, std::int64_t columns, float* out) {
  for (std::int64_t j = 0; j < columns; j += panel_columns, out += depth * panel_columns) {
    const std::int64_t width = std::min(panel_columns, columns - j);
    if (b.transposed) {
      // Padding must not be denormal numbers, which are slow to multiply.
      if (width < panel_columns) std::fill_n(out, depth * panel_columns, 0.0f);
      transpose(b.at(0, j), b.leading, width, depth, out, panel_columns);
    } else {
      copy_rows(b.at(0, j), b.leading, depth, width, out, panel_columns);
    }
  }
}

void multiply_panels(const MatrixView& a, const float* panels, std::int64_t m, std::int64_t n,
                     std::int64_t depth, float alpha, const Base& base, float* c, std::int64_t stride) {
  for (std::int64_t i = 0; i < m; i += rows_at_once) {
    const std::int64_t height = std::min(rows_at_once, m - i);
    const float* const block = pack_block(a.from(i, 0), height, depth);
    const auto multiply = a.transposed ? multiply_block<true> : multiply_block<false>;
    multiply(block, panels, height, n, depth, alpha, base.at(i, 0), c + i * stride, stride);
  }
}

}  // namespace

ProductKernel Kernel() {
  return {panel_columns, 1, 0.006, pack_panels, multiply_panels};
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(Kernel);

ProductKernel f32_kernel() {
  return HWY_DYNAMIC_DISPATCH(Kernel)();
}

void own_gemm(const ProductKernel& kernel, const MatrixView& a, const MatrixView& b, std::int64_t m,
              std::int64_t n, std::int64_t k, float alpha, bool add, float* c, std::int64_t stride) {
  constexpr std::int64_t columns_at_once = 1024;  // 1 MiB of panels
  const std::int64_t panel = kernel.panel_columns;
  const std::int64_t most = ceil_div(std::min(n, columns_at_once), panel) * panel;
  auto* const panels = thread_scratch<float>(
      panel_slot, static_cast<std::size_t>(kernel.padded(std::min(k, depth_at_once)) * most));
  for (std::int64_t j = 0; j < n; j += columns_at_once) {
    const std::int64_t width = std::min(columns_at_once, n - j);
    for (std::int64_t l = 0; l < k; l += depth_at_once) {
      const std::int64_t depth = std::min(depth_at_once, k - l);
      kernel.pack(b.from(l, j), depth, width, panels);
      const Base base{add || l > 0 ? c + j : nullptr, stride};
      kernel.multiply(a.from(0, l), panels, m, width, depth, alpha, base, c + j, stride);
    }
  }
}

PackedMatrix::PackedMatrix(const ProductKernel& kernel, const MatrixView& matrix, std::int64_t rows,
                           std::int64_t columns, std::int64_t slice_rows)
    : kernel_(kernel), matrix_(matrix), rows_(rows), columns_(columns), slice_rows_(slice_rows) {
  const std::int64_t panel = kernel.panel_columns;
  padded_columns_ = ceil_div(columns, panel) * panel;
  panels_ = Tensor::empty({kernel.padded(std::min(rows, slice_rows)), padded_columns_});
}

std::int64_t PackedMatrix::tasks(std::int64_t slice) const {
  return ceil_div(slice_end(slice) - slice * slice_rows_, depth_at_once) *
         ceil_div(columns_, columns_per_task);
}

void PackedMatrix::pack(std::int64_t slice, std::int64_t task) const {
  const std::int64_t groups = ceil_div(columns_, columns_per_task);
  const std::int64_t row = slice * slice_rows_ + task / groups * depth_at_once,
                     column = task % groups * columns_per_task;
  kernel_.pack(matrix_.from(row, column), std::min(depth_at_once, rows_ - row),
               std::min(columns_per_task, columns_ - column), panels(row, column));
}

float* PackedMatrix::panels(std::int64_t row, std::int64_t column) const {
  return panels_.data<float>() + row % slice_rows_ * padded_columns_ +
         column * kernel_.padded(std::min(depth_at_once, rows_ - row));
}

void PackedMatrix::multiply(const MatrixView& a, std::int64_t row, std::int64_t column, std::int64_t m,
                            std::int64_t n, std::int64_t k, const Base& base, float* c,
                            std::int64_t stride) const {
  for (std::int64_t l = 0; l < k; l += depth_at_once)
    kernel_.multiply(a.from(0, l), panels(row + l, column), m, n, std::min(depth_at_once, k - l), 1.0f,
                     l > 0 ? Base{c, stride} : base, c, stride);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
