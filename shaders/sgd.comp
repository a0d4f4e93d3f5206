#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"
layout(constant_id = 4) const bool has_first = false;
const bool has_second = false;
#include "optimizer.glsl"

// Gradient descent; with momentum (beta1) the velocity u = momentum u + g replaces the gradient.
Element updated(Element e, float gradient) {
  e.first = has_first ? beta1 * e.first + gradient : gradient;
  e.weight = e.weight * shrink - rate * e.first;
  return e;
}
