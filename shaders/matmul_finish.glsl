// Writes the results of tiled products: four neighbouring outputs from their sums, and the sums of
// the rows of a. Needs matmul_tiles.glsl, and a_value(stage, row, l), an element of the tile of a.
#include "activation.glsl"

// activated() for four outputs that begin at a multiple of four elements in every buffer.
vec4 activated_four(vec4 sums, uint at) {
  if (ACTIVATION == 0) return sums;
  vec4 result = unpack_out(pack_out(sums));
  if (takes_derivative) {
    const vec4 x_or_y = unpack_out(saved_fours[(saved_skip + at) / 4]);
    [[unroll]] for (uint c = 0; c < 4; ++c) result[c] *= activation_derivative(x_or_y[c], x_or_y[c]);
  } else {
    if (keeps_sums) kept_sums_fours[(kept_sums_skip + at) / 4] = pack_out(sums);
    [[unroll]] for (uint c = 0; c < 4; ++c) result[c] = activation(result[c]);
  }
  return result;
}

// Writes four outputs. `bias_at`: the index of the first one's bias.
void finish(vec4 value, uint at, uint column, uint bias_at) {
  const bool has_bias = (finish_bits & bias_bit) != 0, accumulates = (finish_bits & accumulate_bit) != 0;
  const uint from_begin = at - out_skip;
  if ((finish_bits & out_fours_bit) != 0 && column + 4 <= n) {
    if (has_bias)
      [[unroll]] for (uint c = 0; c < 4; ++c) value[c] += out_to_float(bias[bias_at + c]);
    if (accumulates) value += unpack_out(out_fours[at / 4]);
    out_fours[at / 4] = pack_out(activated_four(value, from_begin));
  } else {
    for (uint c = 0; c < 4 && column + c < n; ++c) {
      float x = value[c];
      if (has_bias) x += out_to_float(bias[bias_at + c]);
      if (accumulates) x += out_to_float(out_elements[at + c]);
      out_elements[at + c] = float_to_out(activated(x, from_begin + c));
    }
  }
}

// --- the sums of the rows of a over one part of k, in row_sums [parts, m]
// The workgroups of the first column of tiles add them up, since their tiles hold those rows anyway.
const bool with_row_sums = (FLAGS & row_sums_bit) != 0;
const uint rows_each = (BM + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
float own_row_sums[rows_each];

void clear_row_sums() {
  if (with_row_sums) {
    for (uint i = 0; i < rows_each; ++i) own_row_sums[i] = 0;
  }
}

void add_row_sums(uint stage, Place place) {
  if (!with_row_sums || place.column != 0) return;
  for (uint i = 0; i < rows_each; ++i) {
    const uint row = i * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (row < BM)
      for (uint l = 0; l < BK; ++l) own_row_sums[i] += a_value(stage, row, l);
  }
}

void write_row_sums(Place place) {
  if (!with_row_sums || place.column != 0) return;
  for (uint i = 0; i < rows_each; ++i) {
    const uint row = i * gl_WorkGroupSize.x + gl_LocalInvocationIndex;
    if (row < BM && place.row + row < m)
      row_sums[row_sums_skip + place.part * m + place.row + row] = float_to_out(own_row_sums[i]);
  }
}
