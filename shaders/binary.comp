#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16 i32
#include "common.glsl"
#define OPERANDS 3
#define PARAMETERS
#include "tensor_iterator.glsl"
#include "elementwise.glsl"

layout(constant_id = 2) const uint OP = 0;
layout(binding = 0) writeonly buffer Out { T out_[]; };
#if !defined(TYPE_i32)
layout(binding = 0) writeonly buffer Fours0 { FOUR_WRITTEN out_fours[]; };
#endif
layout(binding = 1) readonly buffer A { T a_[]; };
#if !defined(TYPE_i32)
layout(binding = 1) readonly buffer Fours1 { FOUR a_fours[]; };
#endif
layout(binding = 2) readonly buffer B { T b_[]; };
#if !defined(TYPE_i32)
layout(binding = 2) readonly buffer Fours2 { FOUR b_fours[]; };
#endif

// ANY and FLOAT are the values of a line's dtypes: FLOAT lines are left out for integers.
#define ANY(y) \
  if (OP == line) give(y)
#if defined(TYPE_i32)
#define FLOAT(y)
#else
#define FLOAT(y) ANY(y)
#endif

V value(V a, V b) {
  uint line = 0;
#define HEED_BINARY(name, dtypes, y, dyda, dydb) dtypes(y) ++line;
#include "core/elementwise.def"
  return a;
}

void main() {
#if !defined(TYPE_i32)
  if (IN_FOURS) {
    const uint i = four_item();
    if (i >= count) return;
    const vec4 y = operand_four(b_, b_fours, 2, i);
    vec4 four = operand_four(a_, a_fours, 1, i);
    [[unroll]] for (uint c = 0; c < 4; ++c) four[c] = value(four[c], y[c]);
    store_result(out_, out_fours, i, four)
    return;
  }
#endif
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  V a[ITEMS], b[ITEMS];
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    a[k] = to_value(a_[at[k][1]]);
    b[k] = to_value(b_[at[k][2]]);
  }
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = from_value(value(a[k], b[k]));
}
