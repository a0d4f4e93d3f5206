#version 460
#extension GL_GOOGLE_include_directive : require
//! needs GL_KHR_cooperative_matrix
#define TYPE_f16
#include "attention_forward_fragments.glsl"
