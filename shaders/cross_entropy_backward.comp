#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"

// dlogits = grad (softmax - (1 - e) one_hot(target) - e / classes); dlogits may be the memory of the logits.
layout(local_size_x_id = 0) in;

layout(binding = 0) readonly buffer Logits { T logits[]; };
layout(binding = 1) readonly buffer Targets { int targets[]; };
layout(binding = 2) readonly buffer LogSumExp { float log_sum_exp[]; };
layout(binding = 3) readonly buffer Grad { float grad[]; };
layout(binding = 4) writeonly buffer Dlogits { T dlogits[]; };
layout(binding = 5) buffer DeviceErrors { uint errors[]; };
layout(push_constant) uniform Push {
  uint skip_logits, skip_targets, skip_log_sum_exp, skip_grad, skip_dlogits, error_word;
  uint first_row;  // of this launch, among those of the call
  uint count, classes;
  int ignored;
  float on_target, on_every;  // 1 - e, e / classes
};

const uint elements = 4;  // of each thread

void main() {
  for (uint k = 0; k < elements; ++k) {
    const uint at = (group_index() * elements + k) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (at >= count) return;
    const uint row = at / classes, i = at - row * classes;
    const int target = targets[skip_targets + row];
    float d = 0.0;
    if (target != ignored) {
      if (i == 0 && (target < 0 || uint(target) >= classes)) atomicMin(errors[error_word], first_row + row);
      const float g = grad[skip_grad + row];
      d = (exp(to_float(logits[skip_logits + at]) - log_sum_exp[skip_log_sum_exp + row]) - on_every) * g;
      if (i == uint(target)) d -= g * on_target;
    }
    dlogits[skip_dlogits + at] = from_float(d);
  }
}
