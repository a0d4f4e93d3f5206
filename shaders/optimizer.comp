#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant adam MOMENTS=1
//! variant sgd
// One step over a whole list of parameters. Weights and moments are in float, T is the type of the gradients.
#include "common.glsl"
#define LISTS 4
#include "tensor_lists.glsl"
layout(constant_id = 2) const bool has_scale = false;
layout(constant_id = 3) const bool has_skip = false;
#ifdef MOMENTS
const bool has_first = true, has_second = true;
#else
layout(constant_id = 4) const bool has_first = false;
const bool has_second = false;
#endif

layout(binding = 1) buffer Weights { float weights[]; };
layout(binding = 1) buffer WeightFours { vec4 weight_fours[]; };
layout(binding = 2) readonly buffer Gradients { T gradients[]; };
layout(binding = 2) readonly buffer GradientFours { FOUR gradient_fours[]; };
layout(binding = 3) buffer First { float first[]; };
layout(binding = 3) buffer FirstFours { vec4 first_fours[]; };
layout(binding = 4) buffer Second { float second[]; };
layout(binding = 4) buffer SecondFours { vec4 second_fours[]; };
layout(binding = 5) readonly buffer Scale { float scale[]; };
layout(binding = 6) readonly buffer Skip { int skip[]; };
layout(push_constant) uniform Push {
  uint skip_table, skip_weights, skip_gradients, skip_first, skip_second, skip_scale, skip_skip;
  uint entries, groups;
  float rate, beta1, rest1, beta2, rest2, epsilon;
  float added;   // decay that is added to the gradient
  float shrink;  // decay that multiplies the weight
};

// An element's weight and moments, before or after the step.
struct Element {
  float weight, first, second;
};

#ifdef MOMENTS
// Adam (arXiv 1412.6980, algorithm 1). rate and epsilon include the bias corrections.
Element updated(Element e, float gradient) {
  e.first = beta1 * e.first + rest1 * gradient;
  e.second = beta2 * e.second + rest2 * (gradient * gradient);
  e.weight = e.weight * shrink - rate * e.first / (sqrt(e.second) + epsilon);
  return e;
}
#else
// Gradient descent; with momentum (beta1) the velocity u = momentum u + g replaces the gradient.
Element updated(Element e, float gradient) {
  e.first = has_first ? beta1 * e.first + gradient : gradient;
  e.weight = e.weight * shrink - rate * e.first;
  return e;
}
#endif

void main() {
  if (group_index() >= groups || (has_skip && skip[skip_skip] != 0)) return;
  const Piece piece = piece_of(group_index(), skip_table, entries);
  const float factor = has_scale ? scale[skip_scale] : 1.0;
  EACH_FOUR(piece, i) {
    const uint w = piece.at[0] + i, g = piece.at[1] + i, m = piece.at[2] + i, v = piece.at[3] + i;
    const uint left = piece.end - i;
    const bool in_fours = piece.in_fours;
    vec4 weight = load_floats(weights, weight_fours, in_fours, w, left), m_new = vec4(0), v_new = vec4(0);
    const vec4 gradient = load_four(gradients, gradient_fours, in_fours, g, left);
    if (has_first) m_new = load_floats(first, first_fours, in_fours, m, left);
    if (has_second) v_new = load_floats(second, second_fours, in_fours, v, left);
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      const Element e = updated(Element(weight[c], m_new[c], v_new[c]), gradient[c] * factor + added * weight[c]);
      weight[c] = e.weight;
      m_new[c] = e.first;
      v_new[c] = e.second;
    }
    store_floats(weights, weight_fours, in_fours, w, left, weight)
    if (has_first) store_floats(first, first_fours, in_fours, m, left, m_new)
    if (has_second) store_floats(second, second_fours, in_fours, v, left, v_new)
  }
}
