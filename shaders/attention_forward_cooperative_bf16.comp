#version 460
#extension GL_GOOGLE_include_directive : require
//! needs GL_KHR_cooperative_matrix
//! needs GL_EXT_bfloat16
#define TYPE_bf16
#include "attention_forward_fragments.glsl"
