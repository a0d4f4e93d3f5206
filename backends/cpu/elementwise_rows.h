#pragma once

#include <cstdint>

#include "heed/core/elementwise.h"

// Elementwise operations on contiguous memory, on the calling thread, with the processor's best SIMD
// target. Any output may be the same memory as any input. T is float or double; for operations marked ANY
// in the table also std::int32_t.

namespace heed::cpu {

void unary_row(UnaryOp op, UnaryParams params, const float* x, float* out, std::int64_t count);
void unary_row(UnaryOp op, UnaryParams params, const double* x, double* out, std::int64_t count);

void unary_backward_row(UnaryOp op, UnaryParams params, const float* saved, const float* grad, float* out,
                        std::int64_t count);
void unary_backward_row(UnaryOp op, UnaryParams params, const double* saved, const double* grad, double* out,
                        std::int64_t count);

void binary_row(BinaryOp op, const float* a, const float* b, float* out, std::int64_t count);
void binary_row(BinaryOp op, const double* a, const double* b, double* out, std::int64_t count);
void binary_row(BinaryOp op, const std::int32_t* a, const std::int32_t* b, std::int32_t* out,
                std::int64_t count);

void binary_backward_row(BinaryOp op, int operand, const float* a, const float* b, const float* grad,
                         float* out, std::int64_t count);
void binary_backward_row(BinaryOp op, int operand, const double* a, const double* b, const double* grad,
                         double* out, std::int64_t count);

void compare_row(CompareOp op, const float* a, const float* b, std::int32_t* out, std::int64_t count);
void compare_row(CompareOp op, const double* a, const double* b, std::int32_t* out, std::int64_t count);
void compare_row(CompareOp op, const std::int32_t* a, const std::int32_t* b, std::int32_t* out,
                 std::int64_t count);

/// out[i] = condition[i] != 0 ? a[i] : b[i]
template <class T>
void select_row(const std::int32_t* condition, const T* a, const T* b, T* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T yes = a[i], no = b[i];  // reading both lets the compiler vectorise
    out[i] = condition[i] != 0 ? yes : no;
  }
}

}  // namespace heed::cpu
