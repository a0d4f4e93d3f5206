#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
// out = grad dy/da (OPERAND 0) or grad dy/db (OPERAND 1).
#include "common.glsl"
#define OPERANDS 4
#define PARAMETERS
#include "tensor_iterator.glsl"
#include "elementwise.glsl"

layout(constant_id = 2) const uint OP = 0;
layout(constant_id = 3) const uint OPERAND = 0;
layout(binding = 0) writeonly buffer Out { T out_[]; };
layout(binding = 1) readonly buffer A { T a_[]; };
layout(binding = 2) readonly buffer B { T b_[]; };
layout(binding = 3) readonly buffer Grad { T grad_[]; };

float derivative(float a, float b) {
  uint line = 0;
#define HEED_BINARY(name, dtypes, y, dyda, dydb) \
  if (OP == line && OPERAND == 0) return dyda;   \
  if (OP == line++ && OPERAND == 1) return dydb;
#include "core/elementwise.def"
  return 0.0;
}

void main() {
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  float a[ITEMS], b[ITEMS], grad[ITEMS];
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    a[k] = to_float(a_[at[k][1]]);
    b[k] = to_float(b_[at[k][2]]);
    grad[k] = to_float(grad_[at[k][3]]);
  }
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = from_float(grad[k] * derivative(a[k], b[k]));
}
