#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"

// The sum of squares of each piece of a list of tensors; sum_pieces.comp adds up the pieces of a tensor.
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
