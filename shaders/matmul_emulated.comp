#version 460
#extension GL_GOOGLE_include_directive : require
//! types f16 bf16
//! variant matmul_emulated_wide WIDE=1
// shaders/matmul_cooperative.glsl on devices without matrix hardware: for tests.
#define EMULATED
#include "common.glsl"
#include "matmul_cooperative.glsl"
