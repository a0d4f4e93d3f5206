#version 460
#extension GL_GOOGLE_include_directive : require
//! needs GL_KHR_cooperative_matrix
//! needs GL_EXT_bfloat16
//! variant matmul_cooperative_wide_bf16 WIDE=1
#define TYPE_bf16
#include "common.glsl"
#include "matmul_cooperative.glsl"
