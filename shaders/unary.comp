#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"
#define OPERANDS 2
#define PARAMETERS float p, q;
#include "tensor_iterator.glsl"
#include "elementwise.glsl"

layout(constant_id = 2) const uint OP = 0;
layout(binding = 0) writeonly buffer Out { T out_[]; };
layout(binding = 0) writeonly buffer Fours0 { FOUR_WRITTEN out_fours[]; };
layout(binding = 1) readonly buffer X { T x_[]; };
layout(binding = 1) readonly buffer Fours1 { FOUR x_fours[]; };

// The lines of the table are numbered like enum UnaryOp; OP picks one when the pipeline is compiled.
float value(float x) {
  uint line = 0;
#define HEED_UNARY(name, y, saved, dydx, low, high) \
  if (OP == line++) give(y)
#include "core/elementwise.def"
  return x;
}

void main() {
  if (IN_FOURS) {
    const uint i = four_item();
    if (i >= count) return;
    vec4 four = operand_four(x_, x_fours, 1, i);
    [[unroll]] for (uint c = 0; c < 4; ++c) four[c] = value(four[c]);
    store_result(out_, out_fours, i, four)
    return;
  }
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  float x[ITEMS];
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    x[k] = to_float(x_[at[k][1]]);
  }
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = from_float(value(x[k]));
}
