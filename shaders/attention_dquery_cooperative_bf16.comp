#version 460
#extension GL_GOOGLE_include_directive : require
//! needs GL_KHR_cooperative_matrix
//! needs GL_EXT_bfloat16
//! variant attention_dkey_cooperative_bf16 COLUMNS_ARE_QUERIES=1
//! variant attention_dbias_cooperative_bf16 OF_BIAS=1
#define TYPE_bf16
#include "attention_gradient_fragments.glsl"
