#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

// out[s] = x[first[s]] + ... + x[first[s + 1] - 1], pairwise.
layout(local_size_x_id = 0) in;

layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer First { int first[]; };
layout(binding = 2) writeonly buffer Out { float result[]; };
layout(push_constant) uniform Push {
  uint skip_x, skip_first, skip_out;
  uint segments;
};

shared float partial[gl_WorkGroupSize.x];

void main() {
  const uint segment = group_index(), t = gl_LocalInvocationID.x;
  if (segment >= segments) return;
  const uint end = uint(first[skip_first + segment + 1]);
  float sum = 0.0;
  for (uint i = uint(first[skip_first + segment]) + t; i < end; i += gl_WorkGroupSize.x) sum += x[skip_x + i];
  partial[t] = sum;
  barrier();
  for (uint step = gl_WorkGroupSize.x / 2; step > 0; step >>= 1) {
    if (t < step) partial[t] += partial[t + step];
    barrier();
  }
  if (t == 0) result[skip_out + segment] = partial[0];
}
