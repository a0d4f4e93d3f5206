#version 460
#extension GL_GOOGLE_include_directive : require
//! types f32 f16 bf16
#include "common.glsl"

// out[b, index[b, i], :] += x[b, i, :], adding rows with the same target in the order of i: the thread of the
// first such row adds them all, one thread per column. Either `order` holds the positions of each batch
// entry, sorted stably by index, so that rows with the same target are neighbours; or, with few rows, the
// thread searches for them. If out is larger than a binding, a launch sees rows [first_target, last_target)
// of it.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const bool sorted = true;

layout(binding = 0) readonly buffer X { T x[]; };
layout(binding = 1) readonly buffer Index { int index[]; };
layout(binding = 2) readonly buffer Order { int order[]; };
layout(binding = 3) buffer Out { T result[]; };
layout(binding = 4) buffer DeviceErrors { uint errors[]; };
layout(push_constant) uniform Push {
  uint skip_x, skip_index, skip_order, skip_out, error_word;
  uint first_position;  // of this launch in the index as a whole
  uint count;           // rows of x times width
  uint n, m, width;
  uint first_target, last_target;
};

const uint ahead = 8;

// The row of x at a place in the order.
uint row_at(uint batch_begin, uint place) {
  return batch_begin + (sorted ? uint(order[skip_order + batch_begin + place]) : place);
}

void main() {
  const uint at = group_index() * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (at >= count) return;
  const uint row = at / width, column = at - row * width;
  const uint batch = row / m, batch_begin = batch * m, place = row - batch_begin;
  const uint own = row_at(batch_begin, place);
  const int target = index[skip_index + own];
  if (target == -1) return;
  if (target < 0 || uint(target) >= n) {
    if (column == 0) atomicMin(errors[error_word], first_position + own);
    return;
  }
  const uint target_row = batch * n + uint(target);
  if (target_row < first_target || target_row >= last_target) return;
  // Only the first row of a target continues.
  if (sorted) {
    if (place > 0 && index[skip_index + row_at(batch_begin, place - 1)] == target) return;
  } else {
    for (uint i = 0; i < place; ++i) {
      if (index[skip_index + batch_begin + i] == target) return;
    }
  }
  const uint to = skip_out + (target_row - first_target) * width + column;
  float sum = to_float(result[to]) + to_float(x[skip_x + own * width + column]);
  // Several at a time, so that their loads do not wait for each other; a frequent token has hundreds of rows.
  for (uint i = place + 1; i < m; i += ahead) {
    uint from[ahead];
    bool same[ahead];
    float value[ahead];
    [[unroll]] for (uint k = 0; k < ahead; ++k) from[k] = row_at(batch_begin, min(i + k, m - 1));
    [[unroll]] for (uint k = 0; k < ahead; ++k) same[k] = i + k < m && index[skip_index + from[k]] == target;
    [[unroll]] for (uint k = 0; k < ahead; ++k) {
      if (same[k]) value[k] = to_float(x[skip_x + from[k] * width + column]);
    }
    [[unroll]] for (uint k = 0; k < ahead; ++k) {
      if (same[k]) sum += value[k];
    }
    if (sorted && !same[ahead - 1]) break;
  }
  result[to] = from_float(sum);
}
