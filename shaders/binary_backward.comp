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
layout(binding = 0) writeonly buffer Fours0 { FOUR_WRITTEN out_fours[]; };
layout(binding = 1) readonly buffer A { T a_[]; };
layout(binding = 1) readonly buffer Fours1 { FOUR a_fours[]; };
layout(binding = 2) readonly buffer B { T b_[]; };
layout(binding = 2) readonly buffer Fours2 { FOUR b_fours[]; };
layout(binding = 3) readonly buffer Grad { T grad_[]; };
layout(binding = 3) readonly buffer Fours3 { FOUR grad_fours[]; };

float derivative(float a, float b) {
  uint line = 0;
#define HEED_BINARY(name, dtypes, y, dyda, dydb) \
  if (OP == line && OPERAND == 0) give(dyda)   \
  if (OP == line++ && OPERAND == 1) give(dydb)
#include "core/elementwise.def"
  return 0.0;
}

void main() {
  if (IN_FOURS) {
    const uint i = four_item();
    if (i >= count) return;
    const vec4 x = operand_four(a_, a_fours, 1, i), y = operand_four(b_, b_fours, 2, i);
    vec4 four = operand_four(grad_, grad_fours, 3, i);
    [[unroll]] for (uint c = 0; c < 4; ++c) four[c] *= derivative(x[c], y[c]);
    store_result(out_, out_fours, i, four)
    return;
  }
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
