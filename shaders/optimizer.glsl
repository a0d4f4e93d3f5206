// One step over two stretches of parameters at once, so that models of many small tensors need fewer launches. Weights
// and moments are in float, T is the type of the gradients.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool has_scale = false;
layout(constant_id = 2) const bool has_skip = false;

layout(binding = 0) buffer WeightsA { float weights_a[]; };
layout(binding = 1) readonly buffer GradientsA { T gradients_a[]; };
layout(binding = 2) buffer FirstA { float first_a[]; };
layout(binding = 3) buffer SecondA { float second_a[]; };
layout(binding = 4) buffer WeightsB { float weights_b[]; };
layout(binding = 5) readonly buffer GradientsB { T gradients_b[]; };
layout(binding = 6) buffer FirstB { float first_b[]; };
layout(binding = 7) buffer SecondB { float second_b[]; };
layout(binding = 8) readonly buffer Scale { float scale[]; };
layout(binding = 9) readonly buffer Skip { int skip[]; };
layout(push_constant) uniform Push {
  uint skip_wa, skip_ga, skip_ma, skip_va, skip_wb, skip_gb, skip_mb, skip_vb, skip_scale, skip_skip;
  uint count_a, count_b;
  float rate, beta1, rest1, beta2, rest2, epsilon;
  float added;   // decay that is added to the gradient
  float shrink;  // decay that multiplies the weight
};

// What an element has before and after the step.
struct Element {
  float weight, first, second;
};

Element updated(Element e, float gradient);  // defined by the optimizer

const uint elements = 4;  // of each thread

void main() {
  if (has_skip && skip[skip_skip] != 0) return;
  const float factor = has_scale ? scale[skip_scale] : 1.0;
  for (uint k = 0; k < elements; ++k) {
    uint i = (group_index() * elements + k) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i < count_a) {
      Element e = Element(weights_a[skip_wa + i], has_first ? first_a[skip_ma + i] : 0.0,
                          has_second ? second_a[skip_va + i] : 0.0);
      e = updated(e, to_float(gradients_a[skip_ga + i]) * factor + added * e.weight);
      weights_a[skip_wa + i] = e.weight;
      if (has_first) first_a[skip_ma + i] = e.first;
      if (has_second) second_a[skip_va + i] = e.second;
      continue;
    }
    i -= count_a;
    if (i >= count_b) return;
    Element e = Element(weights_b[skip_wb + i], has_first ? first_b[skip_mb + i] : 0.0,
                        has_second ? second_b[skip_vb + i] : 0.0);
    e = updated(e, to_float(gradients_b[skip_gb + i]) * factor + added * e.weight);
    weights_b[skip_wb + i] = e.weight;
    if (has_first) first_b[skip_mb + i] = e.first;
    if (has_second) second_b[skip_vb + i] = e.second;
  }
}
