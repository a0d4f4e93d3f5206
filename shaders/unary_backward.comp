#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
// out = grad dy/dx, where `saved` is x or y, as the table says.
#include "common.glsl"
#define OPERANDS 3
#define PARAMETERS float p, q;
#include "tensor_iterator.glsl"
#include "elementwise.glsl"

layout(constant_id = 2) const uint OP = 0;
layout(binding = 0) writeonly buffer Out { T out_[]; };
layout(binding = 0) writeonly buffer Fours0 { FOUR_WRITTEN out_fours[]; };
layout(binding = 1) readonly buffer Saved { T saved_[]; };
layout(binding = 1) readonly buffer Fours1 { FOUR saved_fours[]; };
layout(binding = 2) readonly buffer Grad { T grad_[]; };
layout(binding = 2) readonly buffer Fours2 { FOUR grad_fours[]; };

// The table's expression uses x or y, whichever was saved; the caller passes it as both.
float derivative(float x, float y) {
  uint line = 0;
#define HEED_UNARY(name, y_of_x, saved, dydx, low, high) \
  if (OP == line++) give(dydx)
#include "core/elementwise.def"
  return 0.0;
}

void main() {
  if (IN_FOURS) {
    const uint i = four_item();
    if (i >= count) return;
    const vec4 kept = operand_four(saved_, saved_fours, 1, i);
    vec4 four = operand_four(grad_, grad_fours, 2, i);
    [[unroll]] for (uint c = 0; c < 4; ++c) four[c] *= derivative(kept[c], kept[c]);
    store_result(out_, out_fours, i, four)
    return;
  }
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  float saved[ITEMS], grad[ITEMS];
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    saved[k] = to_float(saved_[at[k][1]]);
    grad[k] = to_float(grad_[at[k][2]]);
  }
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = from_float(grad[k] * derivative(saved[k], saved[k]));
}
