#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16 i32
#include "common.glsl"
#define OPERANDS 3
#define PARAMETERS
#include "tensor_iterator.glsl"
#include "elementwise.glsl"

layout(constant_id = 2) const uint OP = 0;
layout(binding = 0) writeonly buffer Out { int out_[]; };
layout(binding = 1) readonly buffer A { T a_[]; };
layout(binding = 2) readonly buffer B { T b_[]; };

bool holds(V a, V b) {
  uint line = 0;
#define HEED_COMPARE(name, condition) \
  if (OP == line++) return condition;
#include "core/elementwise.def"
  return false;
}

void main() {
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  V a[ITEMS], b[ITEMS];
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    a[k] = to_value(a_[at[k][1]]);
    b[k] = to_value(b_[at[k][2]]);
  }
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = holds(a[k], b[k]) ? 1 : 0;
}
