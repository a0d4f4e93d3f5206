#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant add_norm_backward OF_SUM=1
//! subgroups
#include "common.glsl"
#include "rows.glsl"
#ifdef OF_SUM
#include "philox.glsl"
#define DROPOUT_PUSH uint first_word, first_block_low, first_block_high, seed_low, seed_high, step, op, first_kept; float scale;
#endif

// With h = (x - mean) s and u = grad weight: dx = s (u - mean(u) - h mean(u h)); not centred: h = x s,
// without mean(u). The `lanes` threads of a row take rows_per_thread rows (a block) one after another, and
// leave the sums of grad h and of grad over the block in sums [blocks, 2, n], which layer_norm_sums.comp adds
// up. With OF_SUM x is residual + added keep / (1 - p): the further gradient of x, `other`, is added to dx,
// and dadded = dx keep / (1 - p).
layout(constant_id = 2) const bool has_weight = true;
layout(constant_id = 3) const bool with_sums = true;
layout(constant_id = 4) const uint held = 4;  // elements of a row per lane: ceil(n / lanes)
layout(constant_id = 5) const bool centred = true;

layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) readonly buffer Weight { T weight[]; };
layout(binding = 2) readonly buffer Mean { float mean[]; };
layout(binding = 3) readonly buffer InverseDeviation { float inverse_deviation[]; };
layout(binding = 4) readonly buffer Grad { T grad[]; };
layout(binding = 5) writeonly buffer Dx { T dx[]; };
layout(binding = 6) writeonly buffer Sums { float sums[]; };
#ifdef OF_SUM
layout(constant_id = 6) const bool has_other = true;
layout(binding = 7) readonly buffer Other { T other[]; };
layout(binding = 8) writeonly buffer Dadded { T dadded[]; };
#endif
layout(push_constant) uniform Push {
  uint skip_x, skip_weight, skip_mean, skip_inverse, skip_grad, skip_dx, skip_sums;
#ifdef OF_SUM
  uint skip_other, skip_dadded;
#endif
  uint rows, n;
  uint rows_per_thread;
#ifdef OF_SUM
  DROPOUT_PUSH
#endif
};
#ifdef OF_SUM
#include "dropout_rows.glsl"
#endif

void main() {
  const uint block = row_index();
  float of_weight[held], of_bias[held], normalised[held], scaled[held];
  [[unroll]] for (uint k = 0; k < held; ++k) of_weight[k] = of_bias[k] = 0.0;

  for (uint r = 0; r < rows_per_thread; ++r) {
    const uint row = block * rows_per_thread + r;
    const bool mine = row < rows;
    const float m = centred && mine ? mean[skip_mean + row] : 0.0;
    const float s = mine ? inverse_deviation[skip_inverse + row] : 0.0;
    float total = 0.0, projection = 0.0;
    [[unroll]] for (uint k = 0; k < held; ++k) {
      const uint i = lane() + k * lanes;
      float g = 0.0, h = 0.0, u = 0.0;
      if (mine && i < n) {
        g = u = to_float(grad[skip_grad + row * n + i]);
        h = (to_float(x[skip_x + row * n + i]) - m) * s;
        if (has_weight) u *= to_float(weight[skip_weight + i]);
      }
      of_weight[k] += g * h;
      of_bias[k] += g;
      total += u;
      projection += u * h;
      normalised[k] = h;
      scaled[k] = u;
    }
    float mean_u = 0.0;
    if (centred) mean_u = row_sum(total) / float(n);
    const float mean_uh = row_sum(projection) / float(n);
    [[unroll]] for (uint k = 0; k < held; ++k) {
      const uint i = lane() + k * lanes;
#ifdef OF_SUM
      if (k % 4 == 0) draw_words(row * n, k);
      if (mine && i < n) {
        const uint at = row * n + i;
        float d = s * (scaled[k] - mean_u - normalised[k] * mean_uh);
        if (has_other) d += to_float(other[skip_other + at]);
        dx[skip_dx + at] = from_float(d);
        if (drops) dadded[skip_dadded + at] = from_float(dropped(k, d, 0.0));
      }
#else
      if (mine && i < n) {
        const float d = s * (scaled[k] - mean_u - normalised[k] * mean_uh);
        dx[skip_dx + row * n + i] = from_float(d);
      }
#endif
    }
  }
  if (!with_sums || block * rows_per_thread >= rows) return;
  [[unroll]] for (uint k = 0; k < held; ++k) {
    const uint i = lane() + k * lanes;
    if (i >= n) break;
    sums[skip_sums + block * 2 * n + i] = of_weight[k];
    sums[skip_sums + block * 2 * n + n + i] = of_bias[k];
  }
}
