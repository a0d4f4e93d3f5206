#version 460
#extension GL_GOOGLE_include_directive : require
//! types f16 bf16
// For tests: shaders/attention_forward_fragments.glsl on devices without matrix hardware.
#define EMULATED
#include "attention_forward_fragments.glsl"
