#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"
#include "matmul_elements.glsl"
// out = parts[0] + parts[1] + ... + bias + beta out, in this order: the second pass of a product whose sums
// over k were computed in parts. activation.glsl may be applied to it.

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FLAGS = 0;

layout(binding = 0) readonly buffer Parts { float parts[]; };  // [part_count, outer, inner, m, n]
layout(binding = 1) readonly buffer Bias { OUT bias[]; };        // [n]
layout(binding = 2) buffer Out { OUT result[]; };
layout(binding = 3) readonly buffer RowParts { float row_parts[]; };  // [part_count, m]
layout(binding = 4) writeonly buffer RowSums { OUT row_sums[]; };     // [m]
layout(binding = 5) writeonly buffer KeptSums { OUT kept_sums[]; };
layout(binding = 6) readonly buffer Saved { OUT saved[]; };

layout(push_constant) uniform Push {
  uint parts_skip, bias_skip, out_skip, row_parts_skip, row_sums_skip, kept_sums_skip, saved_skip;
  uint part_count, count;  // count: outputs
  uint m, n, inner;        // inner: extent of the inner of two batch axes
  uint out_leading, out_outer, out_inner;
  uint finish_bits;
  uint row_count;  // how many row sums to add up, too: m or 0
};

#include "activation.glsl"

void main() {
  const uint step = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint row = gl_GlobalInvocationID.x; row < row_count; row += step) {
    float sum = row_parts[row_parts_skip + row];
    for (uint part = 1; part < part_count; ++part) sum += row_parts[row_parts_skip + part * row_count + row];
    row_sums[row_sums_skip + row] = float_to_out(sum);
  }
  for (uint index = gl_GlobalInvocationID.x; index < count; index += step) {
    float sum = parts[parts_skip + index];
    for (uint part = 1; part < part_count; ++part) sum += parts[parts_skip + part * count + index];
    const uint column = index % n, row = index / n % m, item = index / (n * m);
    const uint at = out_skip + item / inner * out_outer + item % inner * out_inner + row * out_leading + column;
    if ((finish_bits & bias_bit) != 0) sum += out_to_float(bias[bias_skip + column]);
    if ((finish_bits & accumulate_bit) != 0) sum += out_to_float(result[at]);
    result[at] = float_to_out(activated(sum, at - out_skip));
  }
}
