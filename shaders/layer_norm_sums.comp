#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"

// dweight and dbias: the columns of sums [blocks, 2, n] added up. A workgroup takes eight columns; its 16
// rows of threads each add every 16th block, and their sums are combined pairwise.
layout(constant_id = 0) const bool has_weight = true;
layout(constant_id = 1) const bool has_bias = true;
layout(local_size_x = 8, local_size_y = 16) in;

layout(binding = 0) readonly buffer Sums { float sums[]; };
layout(binding = 1) writeonly buffer Dweight { T dweight[]; };
layout(binding = 2) writeonly buffer Dbias { T dbias[]; };
layout(push_constant) uniform Push {
  uint skip_sums, skip_weight, skip_bias;
  uint blocks, n;
};

shared float partial[16][8];

void main() {
  const uint column = group_index() / 2 * 8 + gl_LocalInvocationID.x, part = gl_LocalInvocationID.y;
  const uint kind = group_index() % 2;  // 0: of the weight, 1: of the bias
  float own = 0.0;
  if (column < n) {
    for (uint block = part; block < blocks; block += 16) own += sums[skip_sums + (block * 2 + kind) * n + column];
  }
  partial[part][gl_LocalInvocationID.x] = own;
  barrier();
  for (uint step = 8; step > 0; step >>= 1) {
    if (part < step) partial[part][gl_LocalInvocationID.x] += partial[part + step][gl_LocalInvocationID.x];
    barrier();
  }
  if (part > 0 || column >= n) return;
  const float total = partial[0][gl_LocalInvocationID.x];
  if (kind == 0) {
    if (has_weight) dweight[skip_weight + column] = from_float(total);
  } else if (has_bias) {
    dbias[skip_bias + column] = from_float(total);
  }
}
