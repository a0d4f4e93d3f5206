#pragma once

#include <cstdint>

// Products with a single row, for decoding one token at a time, where a general matrix product spends its
// time on packing. T is float or double.

namespace heed::cpu {

/// out[j] = factor * sum over c of row[c] matrix[j, c] + (add ? out[j] : 0).
template <class T>
void row_times_transposed(const T* row, const T* matrix, std::int64_t stride, std::int64_t rows,
                          std::int64_t columns, T factor, bool add, T* out);

/// The same with the rows of Int8Rows: matrix[j, c] is scales[j] * values[j * stride + c].
void row_times_int8(const float* row, const std::int8_t* values, const float* scales, std::int64_t stride,
                    std::int64_t rows, std::int64_t columns, bool add, float* out);

/// out[c] = (add ? out[c] : 0) + sum over j of weights[j] matrix[j, c].
template <class T>
void row_times_matrix(const T* weights, const T* matrix, std::int64_t stride, std::int64_t rows,
                      std::int64_t columns, bool add, T* out);

}  // namespace heed::cpu
