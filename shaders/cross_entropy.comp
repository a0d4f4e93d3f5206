#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! variant cross_entropy subgroups
//! variant cross_entropy_backward BACKWARD=1
#include "common.glsl"

#ifndef BACKWARD

#include "rows.glsl"

// Cross entropy with label smoothing (arXiv 1512.00567, section 7) straight from the logits [rows, classes]:
// loss = log_sum_exp - (1 - e) x_target - e mean(x). Logits are subtracted only from logits, so that those
// far from 0 lose no digits.
layout(binding = 0) readonly buffer Logits { T logits[]; };
layout(binding = 1) readonly buffer Targets { int targets[]; };
layout(binding = 2) writeonly buffer Loss { float loss[]; };
layout(binding = 3) writeonly buffer LogSumExp { float log_sum_exp[]; };
layout(binding = 4) buffer DeviceErrors { uint errors[]; };
layout(push_constant) uniform Push {
  uint skip_logits, skip_targets, skip_loss, skip_log_sum_exp, error_word;
  uint first_row;  // of this launch, among those of the call
  uint rows, classes;
  uint pitch;  // elements between rows of logits
  int ignored;
  float smoothing;
};

void main() {
  const uint row = row_index();
  const int target = row < rows ? targets[skip_targets + row] : ignored;
  const bool wrong = target != ignored && (target < 0 || uint(target) >= classes);
  if (wrong && lane() == 0) atomicMin(errors[error_word], first_row + row);
  const bool counts = target != ignored && !wrong;

  const uint first = skip_logits + row * pitch;
  Exponentials own = Exponentials(-INFINITY, 0.0);
  float own_values = 0.0, origin = counts ? to_float(logits[first]) : 0.0;
  if (isnan(origin) || isinf(origin)) origin = 0.0;
  if (counts) {
    for (uint i = lane(); i < classes; i += lanes) {
      const float v = to_float(logits[first + i]);
      add_exponential(own, v);
      own_values += v - origin;
    }
  }
  const Exponentials all = row_exponentials(own);
  const float values = row_sum(own_values);
  if (row >= rows || lane() != 0) return;

  const float log_sum = log(all.sum);
  float value = 0.0;
  if (counts) {
    value = (1.0 - smoothing) * ((all.largest - to_float(logits[first + target])) + log_sum);
    if (smoothing != 0.0) value += smoothing * (((all.largest - origin) - values / float(classes)) + log_sum);
  }
  loss[skip_loss + row] = value;
  log_sum_exp[skip_log_sum_exp + 2 * row] = counts ? all.largest : 0.0;
  log_sum_exp[skip_log_sum_exp + 2 * row + 1] = counts ? log_sum : 0.0;
}

#else

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

#endif
