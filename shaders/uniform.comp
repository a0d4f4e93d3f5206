#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"
#define BINDINGS 1
#define PARAMETERS float low, width, last;
#include "random.glsl"

layout(binding = 0) writeonly buffer Out { T out_[]; };

void main() {
  share(draw());
  EACH_ITEM(k) if (item(k) < count) {
    out_[skips[0] + item(k)] = from_float(min(fma(unit_interval(word_of_item(k)), width, low), last));
  }
}
