#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16 i32
#include "common.glsl"
#define OPERANDS 1
#if defined(TYPE_i32)
#define PARAMETERS int element;
#define as_stored(x) (x)
#else
#define PARAMETERS float element;
#define as_stored(x) from_float(x)
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
  EACH_ITEM(k) if (item(k) < count) out_[locate(item(k))[0]] = as_stored(element);
}
