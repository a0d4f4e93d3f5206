#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant unary
//! variant unary_backward BACKWARD=1
//! variant binary BINARY=1 types f32 f16 bf16 i32
//! variant binary_backward BINARY=1 BACKWARD=1
//! variant compare BINARY=1 COMPARE=1 types f32 f16 bf16 i32
// The ops of core/elementwise.def, and the gradients that pass through them. The lines of the table are
// numbered like enum UnaryOp, BinaryOp and CompareOp; OP selects one when the pipeline is compiled.
#include "common.glsl"
#ifndef BINARY
#define BINARY 0
#endif
#ifndef BACKWARD
#define BACKWARD 0
#endif
#define OPERANDS (2 + BINARY + BACKWARD)
#if BINARY
#define PARAMETERS
#else
#define PARAMETERS float p, q;
#endif
#include "tensor_iterator.glsl"
#define TABLE_NAMES
#include "math.glsl"
#define rint(x) roundEven(x)

layout(constant_id = 2) const uint OP = 0;
#if BINARY && BACKWARD
layout(constant_id = 3) const uint OPERAND = 0;  // whose gradient: 0 of a, 1 of b
#endif
#ifdef COMPARE
layout(binding = 0) writeonly buffer Out { int out_[]; };
#else
layout(binding = 0) writeonly buffer Out { T out_[]; };
#endif
layout(binding = 1) readonly buffer A { T a_[]; };
#if BINARY
layout(binding = 2) readonly buffer B { T b_[]; };
#endif
#if BACKWARD
layout(binding = OPERANDS - 1) readonly buffer Grad { T grad_[]; };
#endif

#if !defined(TYPE_i32) && !defined(COMPARE)
#define FOURS
layout(binding = 0) writeonly buffer OutFours { FOUR_WRITTEN out_fours[]; };
layout(binding = 1) readonly buffer AFours { FOUR a_fours[]; };
#if BINARY
layout(binding = 2) readonly buffer BFours { FOUR b_fours[]; };
#endif
#if BACKWARD
layout(binding = OPERANDS - 1) readonly buffer GradFours { FOUR grad_fours[]; };
#endif
#endif

#if defined(COMPARE)

bool value(V a, V b) {
  uint line = 0;
#define HEED_COMPARE(name, condition) \
  if (OP == line++) return condition;
#include "core/elementwise.def"
  return false;
}

#elif BINARY && BACKWARD

float value(float a, float b) {
  uint line = 0;
#define HEED_BINARY(name, dtypes, y, dyda, dydb) \
  if (OP == line && OPERAND == 0) give(dyda)     \
  if (OP == line++ && OPERAND == 1) give(dydb)
#include "core/elementwise.def"
  return 0.0;
}

#elif BINARY

// ANY and FLOAT are the dtypes of a line: integers have no FLOAT lines.
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

#else

#if BACKWARD  // the derivative is an expression of x or y, whichever was saved; main() passes that as both
#define CHOSEN(y, dydx) dydx
#else
#define CHOSEN(y, dydx) y
#endif
float value(float x, float y) {
  uint line = 0;
#define HEED_UNARY(name, y_of_x, saved, dydx, low, high) \
  if (OP == line++) give(CHOSEN(y_of_x, dydx))
#include "core/elementwise.def"
  return 0.0;
}

#endif

void main() {
#ifdef FOURS
  if (IN_FOURS) {
    const uint i = four_item();
    if (i >= count) return;
    const vec4 a = operand_four(a_, a_fours, 1, i);
#if BINARY
    const vec4 b = operand_four(b_, b_fours, 2, i);
#else
    const vec4 b = a;
#endif
#if BACKWARD
    vec4 result = operand_four(grad_, grad_fours, OPERANDS - 1, i);
    [[unroll]] for (uint c = 0; c < 4; ++c) result[c] *= value(a[c], b[c]);
#else
    vec4 result;
    [[unroll]] for (uint c = 0; c < 4; ++c) result[c] = value(a[c], b[c]);
#endif
    store_result(out_, out_fours, i, result)
    return;
  }
#endif
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  V a[ITEMS], b[ITEMS];
#if BACKWARD
  float grad[ITEMS];
#endif
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    a[k] = to_value(a_[at[k][1]]);
#if BINARY
    b[k] = to_value(b_[at[k][2]]);
#else
    b[k] = a[k];
#endif
#if BACKWARD
    grad[k] = to_float(grad_[at[k][OPERANDS - 1]]);
#endif
  }
#if defined(COMPARE)
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = value(a[k], b[k]) ? 1 : 0;
#elif BACKWARD
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = from_float(grad[k] * value(a[k], b[k]));
#else
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = from_value(value(a[k], b[k]));
#endif
}
