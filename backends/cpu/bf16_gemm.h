#pragma once

#include <cstdint>

namespace heed::cpu {

/// gemm<float> (blas.h) with the elements of a and b rounded to bf16, as Bf16Products says: c = alpha op(a) op(b), which
/// with `add` is added to c. k is at least 1. The order of a sum depends on k alone.
void bf16_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
               const float* a, std::int64_t lda, const float* b, std::int64_t ldb, bool add, float* c,
               std::int64_t ldc);

}  // namespace heed::cpu
