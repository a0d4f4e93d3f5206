#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"

// The sum of squares of every piece of up to eight tensors; sum_pieces.comp adds the pieces of a tensor.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint piece = 8192;  // elements

layout(binding = 0) readonly buffer X0 { T x0[]; };
layout(binding = 1) readonly buffer X1 { T x1[]; };
layout(binding = 2) readonly buffer X2 { T x2[]; };
layout(binding = 3) readonly buffer X3 { T x3[]; };
layout(binding = 4) readonly buffer X4 { T x4[]; };
layout(binding = 5) readonly buffer X5 { T x5[]; };
layout(binding = 6) readonly buffer X6 { T x6[]; };
layout(binding = 7) readonly buffer X7 { T x7[]; };
layout(binding = 8) writeonly buffer Sums { float sums[]; };
layout(push_constant) uniform Push {
  uint skips[8];
  uint skip_sums;
  uint counts[8];  // elements of each tensor
  uint pieces;     // of all of them
};

shared float partial[gl_WorkGroupSize.x];

float element(uint tensor, uint i) {
  switch (tensor) {
    case 0: return to_float(x0[i]);
    case 1: return to_float(x1[i]);
    case 2: return to_float(x2[i]);
    case 3: return to_float(x3[i]);
    case 4: return to_float(x4[i]);
    case 5: return to_float(x5[i]);
    case 6: return to_float(x6[i]);
  }
  return to_float(x7[i]);
}

void main() {
  // The tensor that this group's piece belongs to.
  uint tensor = 0, begin = group_index();
  if (begin >= pieces) return;
  for (; tensor < 7; ++tensor) {
    const uint own = (counts[tensor] + piece - 1) / piece;
    if (begin < own) break;
    begin -= own;
  }
  begin *= piece;
  const uint end = min(begin + piece, counts[tensor]);
  const uint t = gl_LocalInvocationID.x;
  float sum = 0.0;
  for (uint i = begin + t; i < end; i += gl_WorkGroupSize.x) {
    const float v = element(tensor, skips[tensor] + i);
    sum += v * v;
  }
  partial[t] = sum;
  barrier();
  for (uint step = gl_WorkGroupSize.x / 2; step > 0; step >>= 1) {
    if (t < step) partial[t] += partial[t + step];
    barrier();
  }
  if (t == 0) sums[skip_sums + group_index()] = partial[0];
}
