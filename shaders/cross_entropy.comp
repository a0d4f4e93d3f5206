#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
//! subgroups
#include "common.glsl"
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
