#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant matmul_vector
//! variant matmul_vector_wide WIDE=1 types f16 bf16
// out = x M + beta out + bias, to which activation.glsl may be applied; x is a vector of k elements, M a k x
// n matrix. A workgroup computes COLUMNS outputs; its invocations are divided evenly among them, and their
// partial sums are added in a fixed order.
// WIDE: operands of half precision, output in f32.
#include "common.glsl"
#include "matmul_elements.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint COLUMNS = 8;
// Whether elements with neighbouring k are neighbours in memory (else: neighbouring columns).
layout(constant_id = 2) const bool ALONG_K = false;
layout(constant_id = 3) const uint FLAGS = 0;

layout(binding = 0) readonly buffer X { ELEMENT x[]; };
layout(binding = 1) readonly buffer Matrix { ELEMENT matrix[]; };
layout(binding = 2) readonly buffer Bias { OUT bias[]; };
layout(binding = 3) buffer Out { OUT result[]; };
layout(binding = 4) writeonly buffer KeptSums { OUT kept_sums[]; };
layout(binding = 5) readonly buffer Saved { OUT saved[]; };

layout(push_constant) uniform Push {
  uint x_skip, matrix_skip, bias_skip, out_skip, kept_sums_skip, saved_skip;
  uint n, k;
  uint x_step, leading, out_step, bias_step;  // elements between neighbours; between lines of the matrix
  uint inner;                                 // extent of the inner of two batch axes
  uint x_outer, x_inner, matrix_outer, matrix_inner, out_outer, out_inner;
  uint finish_bits;
};

const uint slices = gl_WorkGroupSize.x / COLUMNS;
shared float sums[gl_WorkGroupSize.x];

#if defined(TYPE_f32)
#define element(data, at) data[at]
#elif defined(TYPE_f16)
#define element(data, at) unpackHalf2x16(uint(data[at])).x
#else
#define element(data, at) uintBitsToFloat(uint(data[at]) << 16)
#endif

#include "activation.glsl"

void main() {
  // Neighbouring invocations read neighbouring elements.
  const uint slice = ALONG_K ? gl_LocalInvocationIndex % slices : gl_LocalInvocationIndex / COLUMNS;
  const uint within = ALONG_K ? gl_LocalInvocationIndex / slices : gl_LocalInvocationIndex % COLUMNS;
  const uint column = gl_WorkGroupID.x * COLUMNS + within;
  const uint outer = gl_WorkGroupID.z / inner, item = gl_WorkGroupID.z % inner;
  const uint vector_begin = x_skip + outer * x_outer + item * x_inner;
  const uint line_begin = matrix_skip + outer * matrix_outer + item * matrix_inner + column * (ALONG_K ? leading : 1);
  const uint step = ALONG_K ? 1 : leading;

  vec4 sum = vec4(0);
  if (column < n) {
    for (uint l = slice; l < k; l += 4 * slices) {
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        const uint at = l + c * slices;
        if (at < k) sum[c] = fma(element(x, vector_begin + at * x_step), element(matrix, line_begin + at * step), sum[c]);
      }
    }
  }
  const uint place = within * slices + slice;
  sums[place] = (sum.x + sum.y) + (sum.z + sum.w);
  for (uint half_slices = slices / 2; half_slices > 0; half_slices /= 2) {
    barrier();
    if (slice < half_slices) sums[place] += sums[place + half_slices];
  }
  if (slice == 0 && column < n) {
    float value = sums[place];
    const uint at = out_skip + outer * out_outer + item * out_inner + column * out_step;
    if ((finish_bits & bias_bit) != 0) value += out_to_float(bias[bias_skip + column * bias_step]);
    if ((finish_bits & accumulate_bit) != 0) value += out_to_float(result[at]);
    result[at] = float_to_out(activated(value, at - out_skip));
  }
}
