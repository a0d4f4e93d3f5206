#include "heed/backends/cpu/blas.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/backends/cpu/row_products.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, once per target:
#include "heed/backends/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// One long matrix row after the other: memory is read as a single stream, which the prefetchers follow.
template <class T>
void LongRowsTimesRow(const T* HWY_RESTRICT row, const T* HWY_RESTRICT matrix, std::int64_t stride,
                      std::int64_t rows, std::int64_t columns, T factor, bool add, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = columns / lanes * lanes, rest = columns - whole;
  constexpr std::int64_t ahead = 4096 / sizeof(T);
  for (std::int64_t j = 0; j < rows; ++j) {
    const T* a = matrix + j * stride;
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    std::int64_t i = 0;
    for (; i + 4 * lanes <= whole; i += 4 * lanes) {
      for (std::int64_t line = 0; line < 4 * lanes; line += 64 / sizeof(T))
        hwy::Prefetch(a + i + ahead + line);
      s0 = hn::MulAdd(hn::LoadU(d, row + i), hn::LoadU(d, a + i), s0);
      s1 = hn::MulAdd(hn::LoadU(d, row + i + lanes), hn::LoadU(d, a + i + lanes), s1);
      s2 = hn::MulAdd(hn::LoadU(d, row + i + 2 * lanes), hn::LoadU(d, a + i + 2 * lanes), s2);
      s3 = hn::MulAdd(hn::LoadU(d, row + i + 3 * lanes), hn::LoadU(d, a + i + 3 * lanes), s3);
    }
    for (; i < whole; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, row + i), hn::LoadU(d, a + i), s0);
    if (rest > 0) s1 = hn::MulAdd(load_n(d, row + whole, rest), load_n(d, a + whole, rest), s1);
    out[j] = factor * lane_sum(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))) + (add ? out[j] : T{0});
  }
}

/// Four matrix rows at a time, so that their additions overlap.
template <class T>
void RowTimesTransposed(const T* HWY_RESTRICT row, const T* HWY_RESTRICT matrix, std::int64_t stride,
                        std::int64_t rows, std::int64_t columns, T factor, bool add, T* HWY_RESTRICT out) {
  if (columns >= 256) return LongRowsTimesRow(row, matrix, stride, rows, columns, factor, add, out);
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

/// One row after the other, like LongRowsTimesRow. Reads up to a vector beyond the last row
/// (Int8Rows::slack); those values are multiplied by zeros.
void Int8RowsTimesRow(const float* HWY_RESTRICT row, const std::int8_t* HWY_RESTRICT values,
                      const float* HWY_RESTRICT scales, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns, bool add, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int32_t, decltype(d)> words;
  const hn::Rebind<std::int8_t, decltype(d)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = columns / lanes * lanes, rest = columns - whole;
  const auto weights = [&](const std::int8_t* from) HWY_ATTR {
    return hn::ConvertTo(d, hn::PromoteTo(words, hn::LoadU(bytes, from)));
  };
  constexpr std::int64_t ahead = 4096;
  for (std::int64_t j = 0; j < rows; ++j) {
    const std::int8_t* a = values + j * stride;
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    std::int64_t i = 0;
    for (; i + 4 * lanes <= whole; i += 4 * lanes) {
      hwy::Prefetch(a + i + ahead);
      s0 = hn::MulAdd(hn::LoadU(d, row + i), weights(a + i), s0);
      s1 = hn::MulAdd(hn::LoadU(d, row + i + lanes), weights(a + i + lanes), s1);
      s2 = hn::MulAdd(hn::LoadU(d, row + i + 2 * lanes), weights(a + i + 2 * lanes), s2);
      s3 = hn::MulAdd(hn::LoadU(d, row + i + 3 * lanes), weights(a + i + 3 * lanes), s3);
    }
    for (; i < whole; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, row + i), weights(a + i), s0);
    if (rest > 0) s1 = hn::MulAdd(load_n(d, row + whole, rest), weights(a + whole), s1);
    out[j] = scales[j] * lane_sum(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))) + (add ? out[j] : 0.0F);
  }
}

/// Keeps four vectors of columns at a time in registers over all rows.
template <class T>
void RowTimesMatrix(const T* HWY_RESTRICT weights, const T* HWY_RESTRICT matrix, std::int64_t stride,
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
    for (std::int64_t j = 0; j < rows; ++j) {
      sum = hn::MulAdd(hn::Set(d, weights[j]), load(matrix + j * stride + c), sum);
    }
    if (width < lanes) {
      store_n(sum, d, out + c, width);
    } else {
      hn::StoreU(sum, d, out + c);
    }
  }
}

// HWY_EXPORT makes one table per function name, so each instance gets a name.
void transposed_f32(const float* row, const float* matrix, std::int64_t stride, std::int64_t rows,
                    std::int64_t columns, float factor, bool add, float* out) {
  RowTimesTransposed(row, matrix, stride, rows, columns, factor, add, out);
}
void transposed_f64(const double* row, const double* matrix, std::int64_t stride, std::int64_t rows,
                    std::int64_t columns, double factor, bool add, double* out) {
  RowTimesTransposed(row, matrix, stride, rows, columns, factor, add, out);
}
void plain_f32(const float* weights, const float* matrix, std::int64_t stride, std::int64_t rows,
               std::int64_t columns, bool add, float* out) {
  RowTimesMatrix(weights, matrix, stride, rows, columns, add, out);
}
void plain_f64(const double* weights, const double* matrix, std::int64_t stride, std::int64_t rows,
               std::int64_t columns, bool add, double* out) {
  RowTimesMatrix(weights, matrix, stride, rows, columns, add, out);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(transposed_f32);
HWY_EXPORT(transposed_f64);
HWY_EXPORT(plain_f32);
HWY_EXPORT(plain_f64);
HWY_EXPORT(Int8RowsTimesRow);

template <>
void row_times_transposed(const float* row, const float* matrix, std::int64_t stride, std::int64_t rows,
                          std::int64_t columns, float factor, bool add, float* out) {
  HWY_DYNAMIC_DISPATCH(transposed_f32)(row, matrix, stride, rows, columns, factor, add, out);
}
template <>
void row_times_transposed(const double* row, const double* matrix, std::int64_t stride, std::int64_t rows,
                          std::int64_t columns, double factor, bool add, double* out) {
  HWY_DYNAMIC_DISPATCH(transposed_f64)(row, matrix, stride, rows, columns, factor, add, out);
}
void row_times_int8(const float* row, const std::int8_t* values, const float* scales, std::int64_t stride,
                    std::int64_t rows, std::int64_t columns, bool add, float* out) {
  HWY_DYNAMIC_DISPATCH(Int8RowsTimesRow)(row, values, scales, stride, rows, columns, add, out);
}
template <>
void row_times_matrix(const float* weights, const float* matrix, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns, bool add, float* out) {
  HWY_DYNAMIC_DISPATCH(plain_f32)(weights, matrix, stride, rows, columns, add, out);
}
template <>
void row_times_matrix(const double* weights, const double* matrix, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns, bool add, double* out) {
  HWY_DYNAMIC_DISPATCH(plain_f64)(weights, matrix, stride, rows, columns, add, out);
}

}  // namespace heed::cpu
#endif  // HWY_ONCE
