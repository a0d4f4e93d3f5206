#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant layer_norm subgroups
//! variant add_norm OF_SUM=1 subgroups
//! variant layer_norm_backward BACKWARD=1 subgroups
//! variant add_norm_backward BACKWARD=1 OF_SUM=1 subgroups
//! variant layer_norm_sums SUMS=1
// Layer normalisation (arXiv 1607.06450) over the rows of [rows, n]: y = (x - mean) inverse_deviation weight
// + bias. RMS normalisation (arXiv 1910.07467) is the same without centring, that is with a mean of 0. With
// OF_SUM, x is residual + added keep / (1 - p), rounded to T and stored.
//
// Backward, with h = (x - mean) s and u = grad weight: dx = s (u - mean(u) - h mean(u h)); not centred: h = x
// s, without mean(u). The `lanes` threads of a row take rows_per_thread rows (a block) one after another, and
// leave the sums of grad h and of grad over the block in sums [blocks, 2, n], which layer_norm_sums adds up.
// With OF_SUM, `other`, the gradient that reaches x by another path, is added to dx, and dadded is
// dx keep / (1 - p).
#include "common.glsl"

#ifndef SUMS

#include "rows.glsl"

layout(constant_id = 2) const bool has_weight = true;
layout(constant_id = 4) const uint held = 4;  // elements of a row per lane: ceil(n / lanes)
layout(constant_id = 5) const bool centred = true;
#define DROPOUT_PUSH                                                                                  \
  uint first_word, first_block_low, first_block_high, seed_low, seed_high, step, op, first_kept; \
  float scale;

#ifndef BACKWARD
layout(constant_id = 3) const bool has_bias = true;
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
#else
layout(constant_id = 3) const bool with_sums = true;
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
#endif

#ifdef OF_SUM

// --- dropout of rows that threads share as in rows.glsl
// Element i of the launch's row r is element first_word + r n + i of the stream that begins with block
// first_block. Each thread takes four elements at a time. Their words are in shared memory, with up to three
// words before them if a row begins within a block.
layout(constant_id = 7) const bool drops = true;  // p > 0

shared uvec4 drawn[drops ? 2 * gl_WorkGroupSize.x : 1];
uint first_of_row;  // where the row's words begin within the blocks drawn

// Draws the words for elements k, ..., k + 3 of each thread of a row that begins at element `begin`. All
// threads of a workgroup call it together.
void draw_words(uint begin, uint k) {
  if (!drops) return;
  const uint word = first_word + begin;
  const uint blocks = lanes + (word % 4 == 0 ? 0 : 1), own = thread() / lanes * (lanes + 1);
  first_of_row = own * 4 + word % 4;
  barrier();  // all threads have read the last words
  for (uint b = lane(); b < blocks; b += lanes) {
    uint carry;
    const uint low = uaddCarry(first_block_low, word / 4 + k / 4 * lanes + b, carry);
    drawn[own + b] = philox(RandomKey(seed_low, seed_high, step, op), low, first_block_high + carry);
  }
  barrier();
}

// residual + x keep / (1 - p) for element k of this thread.
float dropped(uint k, float x, float residual) {
  if (!drops) return x + residual;
  const uint word = first_of_row + k % 4 * lanes + lane();
  const float kept = drawn[word / 4][word % 4] >> 8 >= first_kept ? x : 0.0;
  return fma(kept, scale, residual);
}

#endif

#ifndef BACKWARD

shared bool any_leaves;

void main() {
  const uint row = row_index();
  const bool mine = row < rows;
  float values[held];
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
  }
  // A row whose sums or squares leave the range of floats is taken again, times a power of two.
  float m = 0.0, variance = 0.0, scale = 1.0;
  for (uint attempt = 0; attempt < 2; ++attempt) {
    float own = 0.0;
    if (centred) {
      [[unroll]] for (uint k = 0; k < held; ++k) own += values[k];
      m = row_sum(own) / float(n);
      own = 0.0;
    }
    [[unroll]] for (uint k = 0; k < held; ++k) {
      values[k] -= m;
      if (lane() + k * lanes < n) own += values[k] * values[k];
    }
    variance = row_sum(own) / float(n) + epsilon * scale * scale;
    if (attempt == 1) break;
    const bool leaves = mine && !(variance >= 1e-31 && variance <= 3.4028235e38);
    if (thread() == 0) any_leaves = false;
    barrier();
    if (leaves) any_leaves = true;
    barrier();
    if (!any_leaves) break;
    if (leaves) scale = variance < 1.0 ? 1.2676506002282294e30 : 8.271806125530277e-25;  // 2^100, 2^-80
    [[unroll]] for (uint k = 0; k < held; ++k) {
      const uint i = lane() + k * lanes;
      values[k] = mine && i < n ? to_float(x[skip_x + row * n + i]) * scale : 0.0;
    }
  }
  const float inverse = variance == INFINITY ? uintBitsToFloat(0x7fc00000u) : 1.0 / sqrt(variance);
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
    if (centred) mean[skip_mean + row] = m / scale;
    inverse_deviation[skip_inverse + row] = inverse * scale;
  }
}

#else

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

#endif

#else  // SUMS

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

#endif
