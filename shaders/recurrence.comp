#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32
#include "common.glsl"
#include "math.glsl"

// A state for each head that changes token by token (core/recurrence.h). A workgroup takes WIDTH columns of S
// of one head; each of its HEIGHT invocations for a column holds up to HELD rows of it.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint WIDTH = 1;
layout(constant_id = 2) const uint HELD = 1;
layout(constant_id = 3) const bool ADDS = true;
layout(constant_id = 4) const bool DECAYS = false;
layout(constant_id = 5) const bool OVERWRITES = false;
layout(constant_id = 6) const bool HAS_TARGET = false;
layout(constant_id = 7) const bool KEEPS = false;  // states and what is written, for the backward pass
layout(constant_id = 8) const bool REVERSE = false;
const uint HEIGHT = gl_WorkGroupSize.x / WIDTH;

// q, k, g, r and w: [heads, length, keys]; v, x, out and written: [heads, length, width].
layout(binding = 0) readonly buffer Query { float q_[]; };
layout(binding = 1) readonly buffer Key { float k_[]; };
layout(binding = 2) readonly buffer Value { float v_[]; };
layout(binding = 3) readonly buffer Decay { float g_[]; };
layout(binding = 4) readonly buffer Reading { float r_[]; };
layout(binding = 5) readonly buffer Writing { float w_[]; };
layout(binding = 6) readonly buffer Target { float x_[]; };
layout(binding = 7) writeonly buffer Out { float out_[]; };
layout(binding = 8) writeonly buffer Written { float written_[]; };
layout(binding = 9) writeonly buffer States { float states_[]; };  // before chunks, [heads, chunks, keys, width]
layout(binding = 10) buffer State { float state_[]; };  // before the first token, then after the last
layout(push_constant) uniform Push {
  uint skip_q, skip_k, skip_v, skip_g, skip_r, skip_w, skip_x;
  uint skip_out, skip_written, skip_states, skip_state;
  uint heads, length, keys, width, chunk;
};

shared float sums_of_reading[gl_WorkGroupSize.x];
shared float sums_of_query[2][gl_WorkGroupSize.x];  // in turn, so that one barrier a token is enough

void main() {
  const uint tiles = (width + WIDTH - 1) / WIDTH, head = group_index() / tiles;
  if (head >= heads) return;
  const uint lane = gl_LocalInvocationIndex, column = lane % WIDTH, first = lane / WIDTH;
  const uint j = group_index() % tiles * WIDTH + column;
  const bool inside = j < width;
  const uint chunks = (length + chunk - 1) / chunk;

  float s[HELD];
  for (uint n = 0; n < HELD; ++n) {
    const uint i = first + n * HEIGHT;
    s[n] = inside && i < keys ? state_[skip_state + (head * keys + i) * width + j] : 0.0;
  }
  for (uint at = 0; at < length; ++at) {
    const uint token = head * length + (REVERSE ? length - 1 - at : at);
    const uint row = token * keys, cell = token * width + j;
    if (KEEPS && at % chunk == 0)
      for (uint n = 0; n < HELD; ++n) {
        const uint i = first + n * HEIGHT;
        if (inside && i < keys)
          states_[skip_states + ((head * chunks + at / chunk) * keys + i) * width + j] = s[n];
      }
    if (DECAYS)
      for (uint n = 0; n < HELD; ++n) {
        const uint i = first + n * HEIGHT;
        if (i < keys) s[n] *= exact_exp(g_[skip_g + row + i]);
      }
    float written = 0.0;
    if (OVERWRITES) {
      float sum = 0.0;
      for (uint n = 0; n < HELD; ++n) {
        const uint i = first + n * HEIGHT;
        if (i < keys) sum += r_[skip_r + row + i] * s[n];
      }
      sums_of_reading[lane] = sum;
      barrier();
      sum = 0.0;
      for (uint y = 0; y < HEIGHT; ++y) sum += sums_of_reading[y * WIDTH + column];
      written = (HAS_TARGET && inside ? x_[skip_x + cell] : 0.0) - sum;
      if (KEEPS && inside && first == 0) written_[skip_written + cell] = written;
    }
    const float value = ADDS && inside ? v_[skip_v + cell] : 0.0;
    float sum = 0.0;
    for (uint n = 0; n < HELD; ++n) {
      const uint i = first + n * HEIGHT;
      if (i >= keys) continue;
      if (ADDS) s[n] += k_[skip_k + row + i] * value;
      if (OVERWRITES) s[n] += w_[skip_w + row + i] * written;
      sum += q_[skip_q + row + i] * s[n];
    }
    sums_of_query[at % 2][lane] = sum;
    barrier();
    if (first == 0 && inside) {
      sum = 0.0;
      for (uint y = 0; y < HEIGHT; ++y) sum += sums_of_query[at % 2][y * WIDTH + column];
      out_[skip_out + cell] = sum;
    }
  }
  for (uint n = 0; n < HELD; ++n) {
    const uint i = first + n * HEIGHT;
    if (inside && i < keys) state_[skip_state + (head * keys + i) * width + j] = s[n];
  }
}
