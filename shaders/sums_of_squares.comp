#version 460
#extension GL_GOOGLE_include_directive : require
//! variant sums_of_squares types f32 f16 bf16
//! variant sum_pieces PIECES=1
#include "common.glsl"

#ifndef PIECES

// The sum of squares of each piece of a list of tensors; sum_pieces adds up the pieces of a tensor.
#define LISTS 1
#include "tensor_lists.glsl"

layout(binding = 1) readonly buffer X { T x_[]; };
layout(binding = 1) readonly buffer XFours { FOUR x_fours[]; };
layout(binding = 2) writeonly buffer Sums { float sums[]; };
layout(push_constant) uniform Push {
  uint skip_table, skip_x, skip_sums;
  uint entries, groups;
};

shared float partial[gl_WorkGroupSize.x];

void main() {
  if (group_index() >= groups) return;
  const Piece piece = piece_of(group_index(), skip_table, entries);
  const uint t = gl_LocalInvocationIndex;
  vec4 squares = vec4(0);
  EACH_FOUR(piece, i) {
    const vec4 v = load_four(x_, x_fours, piece.in_fours, piece.at[0] + i, piece.end - i);
    squares += v * v;
  }
  partial[t] = (squares.x + squares.y) + (squares.z + squares.w);
  barrier();
  for (uint step = gl_WorkGroupSize.x / 2; step > 0; step >>= 1) {
    if (t < step) partial[t] += partial[t + step];
    barrier();
  }
  if (t == 0) sums[skip_sums + piece.number] = partial[0];
}

#else

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

#endif
