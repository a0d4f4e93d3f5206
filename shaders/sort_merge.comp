#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

// Merges neighbouring sorted runs of the rows of [rows, n]: an entry moves by the number of entries in the
// other run that precede it, which bisection finds. Only the first `kept` entries of a row are written.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool writes_keys = true;

layout(binding = 0) readonly buffer KeysIn { uint keys_in[]; };
layout(binding = 1) readonly buffer PositionsIn { uint positions_in[]; };
layout(binding = 2) writeonly buffer KeysOut { uint keys_out[]; };
layout(binding = 3) writeonly buffer PositionsOut { uint positions_out[]; };
layout(push_constant) uniform Push {
  uint skip_keys_in, skip_positions_in, skip_keys_out, skip_positions_out;
  uint count, n;
  uint run;   // length of the sorted runs
  uint kept;  // entries of a row in the output
};

void main() {
  const uint at = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (at >= count) return;
  const uint row_begin = at / n * n, i = at - row_begin;
  const uint key = keys_in[skip_keys_in + at], position = positions_in[skip_positions_in + at];
  const uint other = (i / run ^ 1u) * run;
  uint low = min(other, n), high = min(other + run, n);
  while (low < high) {
    const uint middle = (low + high) / 2, there = row_begin + middle;
    const uint its_key = keys_in[skip_keys_in + there];
    const bool before =
        its_key < key || (its_key == key && positions_in[skip_positions_in + there] < position);
    if (before) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const uint place = i / (2 * run) * (2 * run) + i % run + (low - min(other, n));
  if (place >= kept) return;
  const uint to = at / n * kept + place;
  positions_out[skip_positions_out + to] = position;
  if (writes_keys) keys_out[skip_keys_out + to] = key;
}
