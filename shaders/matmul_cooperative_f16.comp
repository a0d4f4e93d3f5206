#version 460
#extension GL_GOOGLE_include_directive : require
//! needs GL_KHR_cooperative_matrix
//! variant matmul_cooperative_wide_f16 WIDE=1
#define TYPE_f16
#include "common.glsl"
#include "matmul_cooperative.glsl"
