#version 460
#extension GL_GOOGLE_include_directive : require
//! types u32 u16
#include "common.glsl"
#define OPERANDS 1
#define PARAMETERS uint element;
#include "walk.glsl"

layout(binding = 0) writeonly buffer Out { T out_[]; };

void main() {
  EACH_ITEM(k) if (item(k) < count) out_[locate(item(k))[0]] = T(element);
}
