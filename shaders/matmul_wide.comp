#version 460
#extension GL_GOOGLE_include_directive : require
//! types f16 bf16
// Operands of half precision, output in f32: for gradients of f32 weights, and for parts of a sum.
#define WIDE
#include "common.glsl"
#include "matmul.glsl"
