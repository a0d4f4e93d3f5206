// attention_gradients.glsl in ordinary arithmetic; adds the gradient of the result as an operand.
#include "attention_products.glsl"
#include "attention_gradients.glsl"

layout(binding = 8) readonly buffer Grad { T grad[]; };
layout(binding = 8) readonly buffer GradQuads { T4 grad_quads[]; };

HEED_LOADER(load_grad, grad, grad_quads, VALUE_WIDTH)
