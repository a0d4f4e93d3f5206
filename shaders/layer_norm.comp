#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant add_norm OF_SUM=1
//! subgroups
#include "common.glsl"
#include "rows.glsl"
#ifdef OF_SUM
#include "philox.glsl"
#define DROPOUT_PUSH uint first_word, first_block_low, first_block_high, seed_low, seed_high, step, op, first_kept; float scale;
#endif

// Layer normalisation (arXiv 1607.06450) over the rows of [rows, n]: y = (x - mean) inverse_deviation weight
// + bias. RMS normalisation (arXiv 1910.07467) is the same without centring, that is with a mean of 0. With
// OF_SUM x is residual + added keep / (1 - p), rounded to T and stored.
layout(constant_id = 2) const bool has_weight = true;
layout(constant_id = 3) const bool has_bias = true;
layout(constant_id = 4) const uint held = 4;  // elements of a row per lane: ceil(n / lanes)
layout(constant_id = 5) const bool centred = true;

#ifdef OF_SUM
layout(binding = 0) buffer X { T x[]; };
#else
layout(binding = 0) readonly buffer X { T x[]; };
#endif
layout(binding = 1) readonly buffer Weight { T weight[]; };
layout(binding = 2) readonly buffer Bias { T bias[]; };
layout(binding = 3) writeonly buffer Out { T result[]; };
layout(binding = 4) writeonly buffer Mean { float mean[]; };
layout(binding = 5) writeonly buffer InverseDeviation { float inverse_deviation[]; };
#ifdef OF_SUM
layout(binding = 6) readonly buffer Added { T added[]; };
layout(binding = 7) readonly buffer Residual { T residual[]; };
#endif
layout(push_constant) uniform Push {
  uint skip_x, skip_weight, skip_bias, skip_out, skip_mean, skip_inverse;
#ifdef OF_SUM
  uint skip_added, skip_residual;
#endif
  uint rows, n;
  float epsilon;
#ifdef OF_SUM
  DROPOUT_PUSH
#endif
};
#ifdef OF_SUM
#include "dropout_rows.glsl"
#endif

void main() {
  const uint row = row_index();
  const bool mine = row < rows;
  float values[held];
  float own = 0.0;
  [[unroll]] for (uint k = 0; k < held; ++k) {
    const uint i = lane() + k * lanes;
#ifdef OF_SUM
    if (k % 4 == 0) draw_words(row * n, k);
    values[k] = 0.0;
    if (mine && i < n) {
      const uint at = row * n + i;
      x[skip_x + at] = from_float(dropped(k, to_float(added[skip_added + at]), to_float(residual[skip_residual + at])));
      values[k] = to_float(x[skip_x + at]);
    }
#else
    values[k] = mine && i < n ? to_float(x[skip_x + row * n + i]) : 0.0;
#endif
    own += values[k];
  }
  float m = 0.0;
  if (centred) m = row_sum(own) / float(n);
  own = 0.0;
  [[unroll]] for (uint k = 0; k < held; ++k) {
    values[k] -= m;
    if (lane() + k * lanes < n) own += values[k] * values[k];
  }
  const float inverse = 1.0 / sqrt(row_sum(own) / float(n) + epsilon);
  if (!mine) return;
  [[unroll]] for (uint k = 0; k < held; ++k) {
    const uint i = lane() + k * lanes;
    if (i >= n) break;
    float v = values[k] * inverse;
    if (has_weight) v *= to_float(weight[skip_weight + i]);
    if (has_bias) v += to_float(bias[skip_bias + i]);
    result[skip_out + row * n + i] = from_float(v);
  }
  if (lane() == 0) {
    if (centred) mean[skip_mean + row] = m;
    inverse_deviation[skip_inverse + row] = inverse;
  }
}
