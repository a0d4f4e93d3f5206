#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"

// dlogits = grad (softmax - (1 - e) one_hot(target) - e / classes); dlogits may be in the memory of the
// logits.
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
  uint rows, classes;
  uint pieces;                 // of a row, one workgroup each
  uint pitch, pitch_dlogits;   // elements between rows
  int ignored;
  float on_target, on_every;  // 1 - e, e / classes
};

void main() {
  const uint row = group_index() / pieces, first = group_index() % pieces * 4 * gl_WorkGroupSize.x;
  if (row >= rows) return;
  const int target = targets[skip_targets + row];
  const bool counts = target != ignored;
  if (counts && first == 0 && gl_LocalInvocationID.x == 0 && (target < 0 || uint(target) >= classes))
    atomicMin(errors[error_word], first_row + row);
  const float largest = log_sum_exp[skip_log_sum_exp + 2 * row],
              log_sum = log_sum_exp[skip_log_sum_exp + 2 * row + 1], g = grad[skip_grad + row];
  [[unroll]] for (uint k = 0; k < 4; ++k) {
    const uint i = first + k * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i >= classes) return;
    float d = 0.0;
    if (counts) {
      d = (exp((to_float(logits[skip_logits + row * pitch + i]) - largest) - log_sum) - on_every) * g;
      if (i == uint(target)) d -= g * on_target;
    }
    dlogits[skip_dlogits + row * pitch_dlogits + i] = from_float(d);
  }
}
