#version 460
#extension GL_GOOGLE_include_directive : require
//! types f16 bf16
//! variant matmul_emulated_wide WIDE=1
// For tests: shaders/matmul_cooperative.glsl on devices without matrix hardware.
#define EMULATED
#include "common.glsl"
#include "matmul_cooperative.glsl"
