#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"
#define BINDINGS 1
#define PARAMETERS float mean, deviation;
#include "random.glsl"
#include "math.glsl"

layout(binding = 0) writeonly buffer Out { T out_[]; };

// Box and Muller (1958): the pair (u, v) gives r cos(2 pi v) and r sin(2 pi v) with r = sqrt(-2 log(1 - u)).
vec2 box_muller(uint u, uint v) {
  float radius = sqrt(max(-2.0 * exact_log(1.0 - unit_interval(u)), 0.0));
  float quarters = 4.0 * unit_interval(v);
  float nearest = floor(quarters + 0.5);
  float r = (quarters - nearest) * 1.5707963267948966;
  uint quadrant = uint(nearest);
  return radius * vec2(sin_of_reduced(quadrant + 1, r), sin_of_reduced(quadrant, r));
}

void main() {
  uvec4 words = draw();
  share(floatBitsToUint(vec4(box_muller(words.x, words.y), box_muller(words.z, words.w))));
  EACH_ITEM(k) if (item(k) < count) {
    out_[skips[0] + item(k)] = from_float(mean + deviation * uintBitsToFloat(word_of_item(k)));
  }
}
