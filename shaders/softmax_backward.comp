#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! subgroups
#include "common.glsl"
#include "rows.glsl"

// dx = y (g - sum(g y)); for the logarithm dx = g - exp(y) sum(g), where entries with y = -infinity count as
// constants.
layout(constant_id = 2) const bool log_form = false;

layout(binding = 0) readonly buffer Y { T y[]; };
layout(binding = 1) readonly buffer Grad { T grad[]; };
layout(binding = 2) writeonly buffer Dx { T dx[]; };
layout(push_constant) uniform Push {
  uint skip_y, skip_grad, skip_dx;
  uint rows, n;
};

void main() {
  const uint row = row_index();
  float own = 0.0;
  if (row < rows) {
    for (uint i = lane(); i < n; i += lanes) {
      const float v = to_float(y[skip_y + row * n + i]), g = to_float(grad[skip_grad + row * n + i]);
      if (log_form) {
        if (v != -INFINITY) own += g;
      } else {
        own += v * g;
      }
    }
  }
  const float sum = row_sum(own);
  if (row >= rows) return;
  for (uint i = lane(); i < n; i += lanes) {
    const float v = to_float(y[skip_y + row * n + i]), g = to_float(grad[skip_grad + row * n + i]);
    float d;
    if (log_form) {
      d = v == -INFINITY ? 0.0 : g - exp(v) * sum;
    } else {
      d = v * (g - sum);
    }
    dx[skip_dx + row * n + i] = from_float(d);
  }
}
