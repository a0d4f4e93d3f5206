#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
// out = residual + x keep / (1 - p), keep = unit_interval(word) >= p, which is (word >> 8) >= ceil(2^24 p).
#include "common.glsl"
#define BINDINGS 3
#define PARAMETERS uint first_kept; float scale;
#include "random.glsl"

layout(constant_id = 1) const bool HAS_RESIDUAL = false;
layout(binding = 0) writeonly buffer Out { T out_[]; };
layout(binding = 1) readonly buffer X { T x_[]; };
layout(binding = 2) readonly buffer Residual { T residual_[]; };

void main() {
  share(draw());
  float y[4];
  EACH_ITEM(k) {
    uint at = min(item(k), count - 1);
    float kept = (word_of_item(k) >> 8) >= first_kept ? to_float(x_[skips[1] + at]) : 0.0;
    y[k] = HAS_RESIDUAL ? fma(kept, scale, to_float(residual_[skips[2] + at])) : kept * scale;
  }
  EACH_ITEM(k) if (item(k) < count) out_[skips[0] + item(k)] = from_float(y[k]);
}
