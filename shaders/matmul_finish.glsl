// Four neighbouring outputs from their sums; needs matmul_push.glsl and matmul_elements.glsl.
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
