#version 460
#extension GL_GOOGLE_include_directive : require
//! types f16 bf16
//! variant attention_dkey_emulated COLUMNS_ARE_QUERIES=1
//! variant attention_dbias_emulated OF_BIAS=1
// For tests: shaders/attention_gradient_fragments.glsl on devices without matrix hardware.
#define EMULATED
#include "attention_gradient_fragments.glsl"
