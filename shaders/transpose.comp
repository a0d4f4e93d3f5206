#version 460
#extension GL_GOOGLE_include_directive : require
//! types u32 u16
// A copy in which neighbours in memory lie along the rows' axis in the input but along the columns' axis in
// the output. Square tiles pass through shared memory, so that both sides are accessed in memory order.
#include "common.glsl"
layout(local_size_x_id = 0) in;
const uint TILE = 32;

layout(push_constant) uniform Push {
  uint skip_out, skip_x;
  uint rows, columns;
  uint row_tiles, column_tiles;
  uint matrices, inner_matrices;  // two axes around the matrix
  uint out_row_stride, out_outer_stride, out_inner_stride;
  uint x_column_stride, x_outer_stride, x_inner_stride;
};
layout(binding = 0) writeonly buffer Out { T out_[]; };
layout(binding = 1) readonly buffer X { T x_[]; };

shared uint tile[TILE][TILE + 1];  // one more, so that a column is spread over the banks

void main() {
  uint group = group_index();
  uint matrix = group / (row_tiles * column_tiles);
  if (matrix >= matrices) return;
  uint within = group % (row_tiles * column_tiles);
  uint top = within / column_tiles * TILE, left = within % column_tiles * TILE;
  uint outer = matrix / inner_matrices, inner = matrix % inner_matrices;
  uint lane = gl_LocalInvocationIndex % TILE, first = gl_LocalInvocationIndex / TILE;
  uint step = gl_WorkGroupSize.x / TILE;

  uint from = skip_x + outer * x_outer_stride + inner * x_inner_stride + top + lane;
  for (uint j = first; j < TILE; j += step) {
    if (top + lane < rows && left + j < columns) tile[j][lane] = uint(x_[from + (left + j) * x_column_stride]);
  }
  barrier();
  uint to = skip_out + outer * out_outer_stride + inner * out_inner_stride + left + lane;
  for (uint i = first; i < TILE; i += step) {
    if (top + i < rows && left + lane < columns) out_[to + (top + i) * out_row_stride] = T(tile[lane][i]);
  }
}
