#version 460
#extension GL_GOOGLE_include_directive : require
//! needs GL_KHR_cooperative_matrix
//! variant attention_dkey_cooperative_f16 COLUMNS_ARE_QUERIES=1
//! variant attention_dbias_cooperative_f16 OF_BIAS=1
#define TYPE_f16
#include "attention_gradient_fragments.glsl"
