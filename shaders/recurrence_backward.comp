#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32
#include "common.glsl"
#include "math.glsl"

// The gradients of recurrence.comp. A workgroup takes a head; invocation (y, x) of HEIGHT x WIDTH has the
// elements (y + a HEIGHT, x + b WIDTH) of S. It takes chunks of tokens from the last: computes the states
// within one again, and walks back over them. The gradients of q, k, g, r and w take the places of these.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WIDTH = 1;
layout(constant_id = 2) const bool ADDS = true;
layout(constant_id = 3) const bool DECAYS = false;
layout(constant_id = 4) const bool OVERWRITES = false;
layout(constant_id = 5) const bool REVERSE = false;
const uint HEIGHT = gl_WorkGroupSize.x / WIDTH;

layout(binding = 0) buffer Query { float q_[]; };  // [heads, length, keys], as the next four
layout(binding = 1) buffer Key { float k_[]; };
layout(binding = 2) buffer Decay { float g_[]; };
layout(binding = 3) buffer Reading { float r_[]; };
layout(binding = 4) buffer Writing { float w_[]; };
// [heads, 2, length, width]: values, then their gradients; and what is written.
layout(binding = 5) coherent buffer Value { float v_[]; };
layout(binding = 6) coherent buffer Written { float x_[]; };
layout(binding = 7) readonly buffer Grad { float grad_[]; };      // of out, [heads, length, width]
layout(binding = 8) readonly buffer States { float states_[]; };  // before chunks, [heads, chunks, keys, width]
layout(binding = 9) buffer Walk { float walk_[]; };    // in a chunk [heads, chunk + 1, keys, width]
layout(binding = 10) buffer Slope { float slope_[]; };  // of the state after, then before, [heads, keys, width]
layout(push_constant) uniform Push {
  uint skip_q, skip_k, skip_g, skip_r, skip_w, skip_v, skip_x, skip_grad, skip_states, skip_walk, skip_slope;
  uint heads, length, keys, width, chunk;
};

// In turn, so that one barrier for each sum is enough.
shared float of_columns[2][2][gl_WorkGroupSize.x];
shared float of_rows[2][5][gl_WorkGroupSize.x];

uint head, lane, x, y, turn = 0;

uint token_at(uint step) { return REVERSE ? length - 1 - step : step; }
float decay(uint row, uint i) { return DECAYS ? exact_exp(g_[skip_g + row + i]) : 1.0; }

/// The states of the chunk that begins at step `begin`.
void compute_states(uint begin, uint count) {
  const uint chunks = (length + chunk - 1) / chunk;
  for (uint i = y; i < keys; i += HEIGHT)
    for (uint j = x; j < width; j += WIDTH) {
      const uint at = i * width + j, apart = keys * width;
      uint walk = skip_walk + head * (chunk + 1) * apart + at;
      float s = states_[skip_states + (head * chunks + begin / chunk) * apart + at];
      walk_[walk] = s;
      for (uint n = 0; n < count; ++n) {
        const uint t = token_at(begin + n), row = (head * length + t) * keys;
        const uint cell = (head * 2 * length + t) * width + j;
        s *= decay(row, i);
        if (ADDS) s += k_[skip_k + row + i] * v_[skip_v + cell];
        if (OVERWRITES) s += w_[skip_w + row + i] * x_[skip_x + cell];
        walk += apart;
        walk_[walk] = s;
      }
    }
}

void walk_back(uint t, uint n) {
  const uint row = (head * length + t) * keys, of_grad = skip_grad + (head * length + t) * width;
  const uint cell = (head * 2 * length + t) * width, of_cell = cell + length * width;
  const uint apart = keys * width, slope = skip_slope + head * apart;
  const uint before = skip_walk + (head * (chunk + 1) + n) * apart, after = before + apart;
  for (uint b = 0; b < width; b += WIDTH) {  // sums over rows
    const uint j = b + x;
    float of_value = 0.0, of_written = 0.0;
    if (j < width) {
      const float grad = grad_[of_grad + j];
      for (uint i = y; i < keys; i += HEIGHT) {
        const float d = slope_[slope + i * width + j] + q_[skip_q + row + i] * grad;
        slope_[slope + i * width + j] = d;
        if (ADDS) of_value += k_[skip_k + row + i] * d;
        if (OVERWRITES) of_written += w_[skip_w + row + i] * d;
      }
    }
    if (ADDS) of_columns[turn][0][lane] = of_value;
    if (OVERWRITES) of_columns[turn][1][lane] = of_written;
    barrier();
    if (y == 0 && j < width) {
      of_value = of_written = 0.0;
      for (uint m = 0; m < HEIGHT; ++m) {
        if (ADDS) of_value += of_columns[turn][0][m * WIDTH + x];
        if (OVERWRITES) of_written += of_columns[turn][1][m * WIDTH + x];
      }
      if (ADDS) v_[skip_v + of_cell + j] = of_value;
      if (OVERWRITES) x_[skip_x + of_cell + j] = of_written;
    }
    turn = 1 - turn;
  }
  memoryBarrierBuffer();
  barrier();
  for (uint a = 0; a < keys; a += HEIGHT) {  // sums over columns
    const uint i = a + y;
    float sums[5] = {0.0, 0.0, 0.0, 0.0, 0.0};  // q, k, g, r, w
    if (i < keys) {
      const float fading = decay(row, i), reading = OVERWRITES ? r_[skip_r + row + i] : 0.0;
      for (uint j = x; j < width; j += WIDTH) {
        const uint at = i * width + j;
        const float faded = walk_[before + at] * fading;
        float d = slope_[slope + at];
        sums[0] += walk_[after + at] * grad_[of_grad + j];
        if (ADDS) sums[1] += d * v_[skip_v + cell + j];
        if (OVERWRITES) {
          const float of_written = x_[skip_x + of_cell + j];
          sums[4] += d * x_[skip_x + cell + j];
          sums[3] -= faded * of_written;
          d -= reading * of_written;
        }
        sums[2] += d * faded;
        slope_[slope + at] = d * fading;
      }
    }
    for (uint m = 0; m < 5; ++m) of_rows[turn][m][lane] = sums[m];
    barrier();
    for (uint m = x; i < keys && m < 5; m += WIDTH) {
      float sum = 0.0;
      for (uint other = 0; other < WIDTH; ++other) sum += of_rows[turn][m][y * WIDTH + other];
      if (m == 0) q_[skip_q + row + i] = sum;
      if (ADDS && m == 1) k_[skip_k + row + i] = sum;
      if (DECAYS && m == 2) g_[skip_g + row + i] = sum;
      if (OVERWRITES && m == 3) r_[skip_r + row + i] = sum;
      if (OVERWRITES && m == 4) w_[skip_w + row + i] = sum;
    }
    turn = 1 - turn;
  }
}

void main() {
  head = group_index();
  if (head >= heads) return;
  lane = gl_LocalInvocationIndex, x = lane % WIDTH, y = lane / WIDTH;
  for (uint c = (length + chunk - 1) / chunk; c > 0; --c) {
    const uint begin = (c - 1) * chunk, count = min(chunk, length - begin);
    compute_states(begin, count);
    for (uint n = count; n > 0; --n) walk_back(token_at(begin + n - 1), n - 1);
  }
}
