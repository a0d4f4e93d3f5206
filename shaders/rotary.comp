#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"

// Rotary positions (arXiv 2104.09864): in x [rows, heads, 2 half_width], whose rows have consecutive
// positions that start again from 0 after the last, the pair of elements i and i + half_width is rotated by
// the angle of its position. A thread rotates one pair.
layout(local_size_x_id = 0) in;

layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) readonly buffer Cosines { float cosines[]; };
layout(binding = 2) readonly buffer Sines { float sines[]; };
layout(binding = 3) writeonly buffer Out { T result[]; };
layout(push_constant) uniform Push {
  uint skip_x, skip_cosines, skip_sines, skip_out;
  uint pairs;
  uint first_position, positions, heads, half_width;
  float direction;  // 1, or -1 to rotate back
};

void main() {
  const uint pair = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (pair >= pairs) return;
  const uint head = pair / half_width, i = pair % half_width;
  const uint angle = (first_position + head / heads) % positions * half_width + i;
  const float cosine = cosines[skip_cosines + angle], sine = direction * sines[skip_sines + angle];
  const uint first = head * 2 * half_width + i, second = first + half_width;
  const float a = to_float(x[skip_x + first]), b = to_float(x[skip_x + second]);
  result[skip_out + first] = from_float(a * cosine - b * sine);
  result[skip_out + second] = from_float(b * cosine + a * sine);
}
