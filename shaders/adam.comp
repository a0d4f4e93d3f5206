#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"
const bool has_first = true, has_second = true;
#include "optimizer.glsl"

// Adam (arXiv 1412.6980, algorithm 1). rate and epsilon include the bias corrections.
Element updated(Element e, float gradient) {
  e.first = beta1 * e.first + rest1 * gradient;
  e.second = beta2 * e.second + rest2 * (gradient * gradient);
  e.weight = e.weight * shrink - rate * e.first / (sqrt(e.second) + epsilon);
  return e;
}
