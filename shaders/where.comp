#version 460
#extension GL_GOOGLE_include_directive : require
//! types u32 u16
// out = condition != 0 ? a : b
#include "common.glsl"
#define OPERANDS 4
#define PARAMETERS
#include "tensor_iterator.glsl"

layout(binding = 0) writeonly buffer Out { T out_[]; };
layout(binding = 1) readonly buffer Condition { int condition_[]; };
layout(binding = 2) readonly buffer A { T a_[]; };
layout(binding = 3) readonly buffer B { T b_[]; };

void main() {
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  uint chosen[ITEMS];
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    uint a = uint(a_[at[k][2]]), b = uint(b_[at[k][3]]);
    chosen[k] = condition_[at[k][1]] != 0 ? a : b;
  }
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = T(chosen[k]);
}
