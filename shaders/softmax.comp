#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant softmax subgroups
//! variant softmax_backward BACKWARD=1 subgroups
#include "common.glsl"
#include "rows.glsl"

layout(constant_id = 2) const bool log_form = false;

#ifndef BACKWARD

// Softmax or its logarithm over the rows of [rows, n]; a row whose entries are all masked gives zeros, or
// -infinity for the logarithm.
layout(constant_id = 3) const uint mask_kind = 0;  // 0: none, 1: of every entry, 2: one entry for a row

layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) readonly buffer Mask { int mask[]; };
layout(binding = 2) writeonly buffer Out { T result[]; };
layout(push_constant) uniform Push {
  uint skip_x, skip_mask, skip_out;
  uint rows, n;
  uint mask_stride;  // from row to row
};

float masked(uint row, uint i) {
  if (mask_kind == 1 && mask[skip_mask + row * mask_stride + i] == 0) return -INFINITY;
  return to_float(x[skip_x + row * n + i]);
}

void main() {
  const uint row = row_index();
  bool mine = row < rows;
  if (mask_kind == 2 && mine && mask[skip_mask + row * mask_stride] == 0) mine = false;

  Exponentials own = Exponentials(-INFINITY, 0.0);
  if (mine) {
    for (uint i = lane(); i < n; i += lanes) add_exponential(own, masked(row, i));
  }
  const Exponentials all = row_exponentials(own);
  if (row >= rows) return;

  const uint first = skip_out + row * n;
  const bool nothing = all.sum == 0.0;  // otherwise the sum is at least 1, from the largest
  const float factor = 1.0 / all.sum, log_sum = log(all.sum);
  for (uint i = lane(); i < n; i += lanes) {
    float y;
    if (nothing) {
      y = log_form ? -INFINITY : 0.0;
    } else {
      const float shifted = masked(row, i) - all.largest;
      y = log_form ? shifted - log_sum : exp(shifted) * factor;
    }
    result[first + i] = from_float(y);
  }
}

#else

// dx = y (g - sum(g y)); for the logarithm dx = g - exp(y) sum(g), where entries with y = -infinity count as
// constants.

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

#endif
