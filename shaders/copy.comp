#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16 i32
//! variant fill FILL=1
//! variant copy
//! variant copy_to_f32 TO_f32=1
//! variant copy_to_f16 TO_f16=1
//! variant copy_to_bf16 TO_bf16=1
//! variant copy_to_i32 TO_i32=1
//! variant where WHERE=1 types u32 u16
// Moves elements without computing: out = x in the element type of out (copy_to_f16_f32 reads f32
// and writes f16; copy_f32 keeps the type), out = element (FILL), or out = condition != 0 ? a : b
// (WHERE).
#include "common.glsl"

#if defined(FILL)

#define OPERANDS 1
#if defined(TYPE_i32)
#define PARAMETERS int element;
#else
#define PARAMETERS float element;
#endif
#include "tensor_iterator.glsl"

layout(binding = 0) writeonly buffer Out { T out_[]; };
#if !defined(TYPE_i32)
layout(binding = 0) writeonly buffer Fours0 { FOUR_WRITTEN out_fours[]; };
#endif

void main() {
#if !defined(TYPE_i32)
  if (IN_FOURS) {
    const uint i = four_item();
    if (i >= count) return;
    store_result(out_, out_fours, i, vec4(element))
    return;
  }
#endif
  EACH_ITEM(k) if (item(k) < count) out_[locate(item(k))[0]] = from_value(element);
}

#elif defined(WHERE)

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

#else

#define OPERANDS 2
#define PARAMETERS
#include "tensor_iterator.glsl"
#include "math.glsl"

// A float is truncated; values beyond the range of int become the nearest bound, and NaN becomes 0.
int to_int(int x) { return x; }
int to_int(float x) {
  if (is_nan(x)) return 0;
  if (x >= 2147483648.0) return 0x7fffffff;
  return x <= -2147483648.0 ? int(0x80000000u) : int(x);
}

#if defined(TO_f32)
#define TO float
#define TO_FOUR vec4
#define converted(x) float(x)
#define converted_four(x) (x)
#elif defined(TO_f16)
#define TO float16_t
#define TO_FOUR f16vec4
#define converted_four(x) f16vec4(x)
#define converted(x) float16_t(float(x))
#elif defined(TO_bf16)
#define TO uint16_t
#define TO_FOUR u16vec4
#define converted_four(v) u16vec4(uvec4(bf16_bits((v).x), bf16_bits((v).y), bf16_bits((v).z), bf16_bits((v).w)))
#define converted(x) uint16_t(bf16_bits(float(x)))
#elif defined(TO_i32)
#define TO int
#define converted(x) to_int(x)
#else
#define TO T
#define TO_FOUR FOUR_WRITTEN
#define converted_four(x) four_from_float(x)
#define converted(x) from_value(x)
#endif

layout(binding = 0) writeonly buffer Out { TO out_[]; };
#if !defined(TYPE_i32) && !defined(TO_i32)
layout(binding = 0) writeonly buffer Fours0 { TO_FOUR out_fours[]; };
#endif
layout(binding = 1) readonly buffer X { T x_[]; };
#if !defined(TYPE_i32) && !defined(TO_i32)
layout(binding = 1) readonly buffer Fours1 { FOUR x_fours[]; };
#endif

void main() {
#if !defined(TYPE_i32) && !defined(TO_i32)
  if (IN_FOURS) {
    const uint i = four_item();
    if (i >= count) return;
    const vec4 four = operand_four(x_, x_fours, 1, i);
    store_four_as(out_, out_fours, converted, converted_four, true, skips[0] + i, count - i, four)
    return;
  }
#endif
  if (item(0) - gl_LocalInvocationIndex >= count) return;
  V x[ITEMS];
  uint at[ITEMS][OPERANDS];
  EACH_ITEM(k) {
    at[k] = locate(item(k));
    x[k] = to_value(x_[at[k][1]]);
  }
  EACH_ITEM(k) if (item(k) < count) out_[at[k][0]] = converted(x[k]);
}

#endif
