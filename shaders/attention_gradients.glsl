// What the gradient passes of attention read: the gradient of the result, and log_sum_exp and D of each query.

layout(binding = 8) readonly buffer Grad { T grad[]; };
layout(binding = 8) readonly buffer GradQuads { T4 grad_quads[]; };
layout(binding = 9) readonly buffer Statistics { float query_statistics[]; };

HEED_LOADER(load_grad, grad, grad_quads, VALUE_WIDTH)

vec2 statistics_of(uint i) {
  const uint at = skip_statistics + 2u * ((local_batch() * heads + local_head()) * queries + i);
  return vec2(query_statistics[at], query_statistics[at + 1u]);
}
