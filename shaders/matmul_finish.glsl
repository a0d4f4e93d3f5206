// Four neighbouring outputs from their sums; needs matmul_push.glsl and matmul_elements.glsl.
void finish(vec4 value, uint at, uint column) {
  const bool has_bias = (finish_bits & bias_bit) != 0, accumulates = (finish_bits & accumulate_bit) != 0;
  if ((finish_bits & out_fours_bit) != 0 && column + 4 <= n) {
    if (has_bias)
      [[unroll]] for (uint c = 0; c < 4; ++c) value[c] += out_to_float(bias[bias_skip + column + c]);
    if (accumulates) value += unpack_out(out_fours[at / 4]);
    out_fours[at / 4] = pack_out(value);
  } else {
    for (uint c = 0; c < min(4, n - column); ++c) {
      float x = value[c];
      if (has_bias) x += out_to_float(bias[bias_skip + column + c]);
      if (accumulates) x += out_to_float(out_elements[at + c]);
      out_elements[at + c] = float_to_out(x);
    }
  }
}
