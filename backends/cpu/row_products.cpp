#include "heed/backends/cpu/blas.h"
#include "heed/core/low_precision.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <tuple>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/row_products.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, once per target:
#include "heed/backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

// The rows of a matrix, as they are stored. load() makes T of a vector of them, last() at the end of a row.

template <class T>
struct PlainRows {
  using Stored = T;
  const T* values;
  std::int64_t stride;

  T scale(std::int64_t) const { return T{1}; }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> last(D d, const T* from, std::int64_t count) {
    return load_n(d, from, count);
  }
};

// Narrow values are read up to a vector beyond the last row (NarrowRows::slack); the values there
// are multiplied by zeros.

struct Bf16Rows {
  using Stored = std::uint16_t;
  const std::uint16_t* values;
  std::int64_t stride;

  float scale(std::int64_t) const { return 1.0F; }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* from) {
    const hn::Rebind<std::uint32_t, D> words;
    const hn::Rebind<std::uint16_t, D> halves;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, from))));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> last(D d, const std::uint16_t* from, std::int64_t) {
    return load(d, from);
  }
};

struct Int8Rows {
  using Stored = std::int8_t;
  const std::int8_t* values;
  std::int64_t stride;
  const float* scales;

  float scale(std::int64_t row) const { return scales[row]; }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::int8_t* from) {
    const hn::Rebind<std::int32_t, D> words;
    const hn::Rebind<std::int8_t, D> bytes;
    return hn::ConvertTo(d, hn::PromoteTo(words, hn::LoadU(bytes, from)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> last(D d, const std::int8_t* from, std::int64_t) {
    return load(d, from);
  }
};

/// Multiplies one matrix row after the other: memory is read as a single stream, which the
/// prefetchers follow. Each value loaded serves Count rows of x. A sum has the same bits for any
/// Count.
template <int Count, class T, class Matrix>
void long_rows(const FewRows<T>& product, std::int64_t row, const Matrix& matrix, std::int64_t begin,
               std::int64_t end) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = product.columns / lanes * lanes, rest = product.columns - whole;
  constexpr std::int64_t size = sizeof(typename Matrix::Stored), ahead = 4096 / size;
  const T* const x = product.x + row * product.x_stride;
  for (std::int64_t j = begin; j < end; ++j) {
    const auto* const a = matrix.values + j * matrix.stride;
    hn::Vec<decltype(d)> sums[Count][4];
    unrolled<Count>([&](auto r)
                        HWY_ATTR { unrolled<4>([&](auto v) HWY_ATTR { sums[r][v] = hn::Zero(d); }); });
    const auto add = [&](auto v, auto values, std::int64_t i) HWY_ATTR {
      unrolled<Count>([&](auto r) HWY_ATTR {
        sums[r][v] = hn::MulAdd(hn::LoadU(d, x + r * product.x_stride + i), values, sums[r][v]);
      });
    };
    std::int64_t i = 0;
    for (; i + 4 * lanes <= whole; i += 4 * lanes) {
      for (std::int64_t line = 0; line < 4 * lanes; line += 64 / size) hwy::Prefetch(a + i + ahead + line);
      unrolled<4>([&](auto v) HWY_ATTR { add(v, Matrix::load(d, a + i + v * lanes), i + v * lanes); });
    }
    for (; i < whole; i += lanes) add(std::integral_constant<int, 0>(), Matrix::load(d, a + i), i);
    if (rest > 0) {
      const auto values = Matrix::last(d, a + whole, rest);
      unrolled<Count>([&](auto r) HWY_ATTR {
        sums[r][1] = hn::MulAdd(load_n(d, x + r * product.x_stride + whole, rest), values, sums[r][1]);
      });
    }
    unrolled<Count>([&](auto r) HWY_ATTR {
      const T sum = lane_sum(d, hn::Add(hn::Add(sums[r][0], sums[r][1]), hn::Add(sums[r][2], sums[r][3])));
      T* const out = product.out + (row + r) * product.out_stride + j;
      *out = product.factor * matrix.scale(j) * sum + (product.add ? *out : T{0});
    });
  }
}

/// All rows of x, as many at a time as there are registers for their sums; a few matrix rows at a time, which
/// stay in the cache for the others.
template <class T, class Matrix>
void few_long_rows(const FewRows<T>& product, const Matrix& matrix) {
  constexpr std::int64_t matrix_rows = 8;
  // Four sums each: of 32 registers 24, of 16 12.
  constexpr int at_once = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM ? 6 : 3;
  for (std::int64_t j = 0; j < product.rows; j += matrix_rows) {
    const std::int64_t end = std::min(j + matrix_rows, product.rows);
    for (std::int64_t row = 0; row < product.count;) {
      const std::int64_t left = product.count - row;
      unrolled<at_once>([&](auto i) HWY_ATTR {
        constexpr int count = i + 1;
        if (count == std::min<std::int64_t>(left, at_once)) long_rows<count>(product, row, matrix, j, end);
      });
      row += std::min<std::int64_t>(left, at_once);
    }
  }
}

/// Four matrix rows at a time, so that their additions overlap.
template <class T>
void short_rows(const T* HWY_RESTRICT row, const T* HWY_RESTRICT matrix, std::int64_t stride,
                std::int64_t rows, std::int64_t columns, T factor, bool add, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = columns / lanes * lanes, rest = columns - whole;
  const auto write = [&](std::int64_t at, T sum) { out[at] = factor * sum + (add ? out[at] : T{0}); };
  std::int64_t j = 0;
  for (; j + 4 <= rows; j += 4) {
    const T *a = matrix + j * stride, *b = a + stride, *c = b + stride, *e = c + stride;
    auto sum_a = hn::Zero(d), sum_b = sum_a, sum_c = sum_a, sum_e = sum_a;
    for (std::int64_t i = 0; i < whole; i += lanes) {
      const auto x = hn::LoadU(d, row + i);
      sum_a = hn::MulAdd(x, hn::LoadU(d, a + i), sum_a);
      sum_b = hn::MulAdd(x, hn::LoadU(d, b + i), sum_b);
      sum_c = hn::MulAdd(x, hn::LoadU(d, c + i), sum_c);
      sum_e = hn::MulAdd(x, hn::LoadU(d, e + i), sum_e);
    }
    if (rest > 0) {
      const auto x = load_n(d, row + whole, rest);
      sum_a = hn::MulAdd(x, load_n(d, a + whole, rest), sum_a);
      sum_b = hn::MulAdd(x, load_n(d, b + whole, rest), sum_b);
      sum_c = hn::MulAdd(x, load_n(d, c + whole, rest), sum_c);
      sum_e = hn::MulAdd(x, load_n(d, e + whole, rest), sum_e);
    }
    write(j, lane_sum(d, sum_a));
    write(j + 1, lane_sum(d, sum_b));
    write(j + 2, lane_sum(d, sum_c));
    write(j + 3, lane_sum(d, sum_e));
  }
  for (; j < rows; ++j) {
    const T* a = matrix + j * stride;
    auto sum = hn::Zero(d);
    for (std::int64_t i = 0; i < whole; i += lanes)
      sum = hn::MulAdd(hn::LoadU(d, row + i), hn::LoadU(d, a + i), sum);
    if (rest > 0) sum = hn::MulAdd(load_n(d, row + whole, rest), load_n(d, a + whole, rest), sum);
    write(j, lane_sum(d, sum));
  }
}

template <class T>
void few_rows(const FewRows<T>& p, const T* matrix, std::int64_t stride) {
  if (p.columns >= 256) return few_long_rows(p, PlainRows<T>{matrix, stride});
  for (std::int64_t r = 0; r < p.count; ++r)
    short_rows(p.x + r * p.x_stride, matrix, stride, p.rows, p.columns, p.factor, p.add,
               p.out + r * p.out_stride);
}

/// Keeps four vectors of columns at a time in registers over all rows.
template <class T>
void row_times_matrix(const T* HWY_RESTRICT weights, const T* HWY_RESTRICT matrix, std::int64_t stride,
                      std::int64_t rows, std::int64_t columns, bool add, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + 4 * lanes <= columns; c += 4 * lanes) {
    auto s0 = add ? hn::LoadU(d, out + c) : hn::Zero(d);
    auto s1 = add ? hn::LoadU(d, out + c + lanes) : hn::Zero(d);
    auto s2 = add ? hn::LoadU(d, out + c + 2 * lanes) : hn::Zero(d);
    auto s3 = add ? hn::LoadU(d, out + c + 3 * lanes) : hn::Zero(d);
    const T* from = matrix + c;
    for (std::int64_t j = 0; j < rows; ++j, from += stride) {
      const auto w = hn::Set(d, weights[j]);
      s0 = hn::MulAdd(w, hn::LoadU(d, from), s0);
      s1 = hn::MulAdd(w, hn::LoadU(d, from + lanes), s1);
      s2 = hn::MulAdd(w, hn::LoadU(d, from + 2 * lanes), s2);
      s3 = hn::MulAdd(w, hn::LoadU(d, from + 3 * lanes), s3);
    }
    hn::StoreU(s0, d, out + c);
    hn::StoreU(s1, d, out + c + lanes);
    hn::StoreU(s2, d, out + c + 2 * lanes);
    hn::StoreU(s3, d, out + c + 3 * lanes);
  }
  for (; c < columns; c += lanes) {
    const std::int64_t width = columns - c < lanes ? columns - c : lanes;
    const auto load = [&](const T* from) {
      return width < lanes ? load_n(d, from, width) : hn::LoadU(d, from);
    };
    auto sum = add ? load(out + c) : hn::Zero(d);
    for (std::int64_t j = 0; j < rows; ++j)
      sum = hn::MulAdd(hn::Set(d, weights[j]), load(matrix + j * stride + c), sum);
    if (width < lanes)
      store_n(sum, d, out + c, width);
    else
      hn::StoreU(sum, d, out + c);
  }
}

void narrow_rows(const FewRows<float>& product, const NarrowRows& matrix, std::int64_t at) {
  if (matrix.format == NarrowRows::Format::bf16) {
    few_long_rows(product, Bf16Rows{matrix.values<std::uint16_t>() + at, matrix.columns});
  } else {
    few_long_rows(product, Int8Rows{matrix.values<std::int8_t>() + at, matrix.columns,
                                    matrix.scales.data() + at / matrix.columns});
  }
}

std::tuple<RowProducts<float>, RowProducts<double>> all_row_products() {
  return {{few_rows<float>, row_times_matrix<float>}, {few_rows<double>, row_times_matrix<double>}};
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(all_row_products);
HWY_EXPORT(narrow_rows);

template <class T>
RowProducts<T> row_products() {
  return std::get<RowProducts<T>>(HWY_DYNAMIC_DISPATCH(all_row_products)());
}
template RowProducts<float> row_products();
template RowProducts<double> row_products();

void times_narrow_rows(const FewRows<float>& product, const NarrowRows& matrix, std::int64_t at) {
  HWY_DYNAMIC_DISPATCH(narrow_rows)(product, matrix, at);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
